package parity

// Outcome is what one comparison showed.
type Outcome uint8

// Outcomes of a comparison.
const (
	// Agree: the same ids here and there.
	Agree Outcome = iota
	// Differ: other ids.
	Differ
	// Refused: the engine refused the request, so it says nothing.
	Refused
	// NoEndpoint: the engine has nothing that would tell its ids.
	NoEndpoint
	// Unavailable: the engine did not answer.
	Unavailable
	// Unsupported: the request cannot be rendered here. It never will be, so the
	// engine is asked for it, and there is nothing to compare.
	Unsupported
	// NumOutcomes is the number of outcomes.
	NumOutcomes = 6
)

// String returns the outcome as a metric label.
func (o Outcome) String() string {
	return [NumOutcomes]string{"agree", "differ", "refused", "no_endpoint", "unavailable", "unsupported"}[o]
}

// Result is the outcome of one case.
type Result struct {
	Case    *Case
	Outcome Outcome
	Diff    Diff // where Outcome is Differ
}

// Local renders a case here. special says whether the tokens that a tokenizer
// adds by itself, such as a beginning of sequence, are added to a completion.
// partial says that the ids end before an image or the like. ok is false for
// what cannot be rendered here.
type Local func(c *Case, special bool) (ids []uint32, partial, ok bool)

// Engine asks an engine for the ids of a case. The outcome is Agree when it told
// them: whether it is true is for the caller to find out.
type Engine func(c *Case) ([]uint32, Outcome)

// Special says whether a completion begins with the tokens that the tokenizer
// adds by itself.
type Special uint8

// Ways with the special tokens of completions.
const (
	// SpecialAuto finds out which of the two an engine does.
	SpecialAuto Special = iota
	// SpecialAlways adds them.
	SpecialAlways
	// SpecialNever does not.
	SpecialNever
)

// Report is what a run over cases showed about one engine.
type Report struct {
	// Engine is its name.
	Engine  string
	Results []Result
	// With and Without say that completions agree with the tokens that the
	// tokenizer adds by itself, and without them. Neither: no completion was
	// compared, or they differ both ways.
	With, Without bool
}

// Run renders cases here and by an engine. An engine that has no endpoint, or
// does not answer, is not asked for more of the same kind. Where special is
// SpecialAuto and completions tell nothing, they are rendered as usual says.
func Run(name string, cases []Case, local Local, engine Engine, special Special, usual bool) Report {
	if special != SpecialAuto {
		usual = special == SpecialAlways
	}
	answers := askAll(cases, engine)
	r := Report{Engine: name, Results: make([]Result, len(cases))}
	if special != SpecialNever {
		r.With = completions(cases, answers, local, true)
	}
	if special != SpecialAlways {
		r.Without = completions(cases, answers, local, false)
	}
	if r.With != r.Without {
		usual = r.With
	}
	for i := range cases {
		r.Results[i] = Result{Case: &cases[i], Outcome: answers[i].outcome}
		if answers[i].outcome == Agree {
			r.Results[i] = Judge(&cases[i], answers[i].ids, local, usual)
		}
	}
	return r
}

type answer struct {
	ids     []uint32
	outcome Outcome
}

// askAll asks an engine for every case, as long as it answers. Chats and
// completions are two things: an engine may tell about one of them alone.
func askAll(cases []Case, engine Engine) []answer {
	answers := make([]answer, len(cases))
	var silent [2]Outcome // about chats and about completions; Agree: not silent
	var told [2]bool
	for i := range cases {
		api := apiOf(&cases[i])
		if answers[i].outcome = silent[api]; silent[api] != Agree {
			continue
		}
		answers[i].ids, answers[i].outcome = engine(&cases[i])
		switch o := answers[i].outcome; o {
		case NoEndpoint, Unavailable:
			silent[api] = o
		case Agree:
			told[api] = true
		default:
		}
	}
	// One that refuses the plainest of requests has no way to answer any, such as
	// an endpoint that takes texts and no chats.
	for i := range answers {
		if answers[i].outcome == Refused && !told[apiOf(&cases[i])] {
			answers[i].outcome = NoEndpoint
		}
	}
	return answers
}

func apiOf(c *Case) int {
	if c.Shape == Completion {
		return 1
	}
	return 0
}

// completions says whether all agree that were answered and can be rendered
// here, and that there are some.
func completions(cases []Case, answers []answer, local Local, special bool) bool {
	agree := false
	for i := range cases {
		if cases[i].Shape != Completion || answers[i].outcome != Agree {
			continue
		}
		switch Judge(&cases[i], answers[i].ids, local, special).Outcome {
		case Agree:
			agree = true
		case Differ:
			return false
		default: // it cannot be rendered here
		}
	}
	return agree
}

// Judge compares the ids that an engine told with those that are computed here.
func Judge(c *Case, engine []uint32, local Local, special bool) Result {
	ids, partial, ok := local(c, special)
	if !ok {
		return Result{Case: c, Outcome: Unsupported}
	}
	if d, same := Compare(ids, engine, partial); !same {
		return Result{Case: c, Outcome: Differ, Diff: d}
	}
	return Result{Case: c, Outcome: Agree}
}
