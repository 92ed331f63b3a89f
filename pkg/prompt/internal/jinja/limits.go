package jinja

// Limits bound one rendering. A zero field means its default.
type Limits struct {
	// Steps is how many nodes of the template are run; long texts count by
	// their length. 2,000,000 by default, some 100 ms.
	Steps int64
	// Output is how long the text may be, in bytes: 16 MiB by default.
	Output int
	// Memory is how many bytes of texts and lists the template may make, what it
	// has dropped included: 64 MiB by default.
	Memory int64
	// Check is asked now and then whether to go on; nil means always.
	Check func() bool
}

// Defaults of [Limits].
const (
	DefaultSteps  = 2_000_000
	DefaultOutput = 16 << 20
	DefaultMemory = 64 << 20
)

const (
	// maxSource is how long a template may be, in bytes. The longest known has
	// 25,000.
	maxSource = 1 << 20
	// maxSyntax is how deep blocks and expressions of a template may nest.
	maxSyntax = 100
	// maxCalls is how deep macros may call each other.
	maxCalls = 50
	// maxNesting is how deep values may nest where they are walked through.
	maxNesting = 600
	// checkEvery is the number of steps between two calls of Limits.Check.
	checkEvery = 4096
	// bytesPerStep is how many bytes of text cost as much as a node.
	bytesPerStep = 64
	// varsPerStep is how many variables to look at cost as much.
	varsPerStep = 16
)

func (l Limits) withDefaults() Limits {
	if l.Steps <= 0 {
		l.Steps = DefaultSteps
	}
	if l.Output <= 0 {
		l.Output = DefaultOutput
	}
	if l.Memory <= 0 {
		l.Memory = DefaultMemory
	}
	return l
}
