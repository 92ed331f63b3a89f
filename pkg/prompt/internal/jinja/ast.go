package jinja

// expr is an expression.
type expr interface {
	eval(m *machine) (Value, *Error)
}

// stmt is a statement, or a run of text.
type stmt interface {
	exec(m *machine) (jump, *Error)
}

// jump says how a statement ended.
type jump uint8

const (
	jumpNone jump = iota
	jumpBreak
	jumpContinue
)

// The expressions.
type (
	constExpr struct{ v Value }
	nameExpr  struct{ id int }
	attrExpr  struct {
		obj  expr
		name string
		own  *members // what Python's types have by this name, nil for nothing
	}
	itemExpr  struct{ obj, key expr }
	sliceExpr struct{ obj, low, high, step expr } // low, high, step may be nil
	unaryExpr struct {
		op byte
		x  expr
	}
	binaryExpr struct {
		op          string
		left, right expr
	}
	concatExpr struct{ parts []expr }
	// sumExpr is a + b + c, of texts most of the time.
	sumExpr     struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	andExpr  struct{ left, right expr }
	orExpr   struct{ left, right expr }
	notExpr  struct{ x expr }
	condExpr struct{ test, yes, no expr } // no may be nil
	callExpr struct {
		fn   expr
		args callArgs
	}
	filterExpr struct {
		x    expr // nil in a filter block: the text of the block
		f    filter
		args callArgs
	}
	testExpr struct {
		x    expr
		f    test
		args callArgs
	}
	listExpr struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, vals []expr }
	// failExpr is a filter or a test that nobody knows, where it may never be
	// reached.
	failExpr struct {
		x   expr
		msg string
	}
)

// callArgs are the arguments of a call.
type callArgs struct {
	pos   []expr
	names []string // of the keywords
	kw    []expr
}

// The statements.
type (
	dataStmt struct{ text string }
	outStmt  struct {
		x    expr
		line int
	}
	ifStmt struct {
		tests  []expr
		bodies [][]stmt // one more than tests when there is an else
		line   int
	}
	forStmt struct {
		target     target
		iter, test expr // test may be nil
		body, none []stmt
		lazy       bool // the test is run when its element is next
		line       int
	}
	setStmt struct {
		target target
		value  expr
		line   int
	}
	// setBlock is a set with a block; the filters apply to its text.
	setBlock struct {
		target target
		value  expr // filters over captured text; nil when there are none
		body   []stmt
		line   int
	}
	macroStmt struct {
		name     string
		id       int
		params   []param
		body     []stmt
		callerID int // id of "caller", -1 when the body does not use it
	}
	callStmt struct {
		call   *callExpr
		caller *macroStmt
		line   int
	}
	filterBlock struct {
		value expr
		body  []stmt
		line  int
	}
	withStmt struct {
		targets []target
		values  []expr
		body    []stmt
		line    int
	}
	breakStmt    struct{}
	continueStmt struct{}
)

// param is a parameter of a macro.
type param struct {
	name string
	id   int
	def  expr // nil: undefined
}

// target is what is assigned to: a name, an attribute of a namespace, or a list
// of targets.
type target struct {
	id    int
	attr  string // of the namespace id, when not empty
	parts []target
	tuple bool
}
