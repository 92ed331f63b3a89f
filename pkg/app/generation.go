package app

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/extproc"
	"github.com/warmpath/warmpath/pkg/index"
	"github.com/warmpath/warmpath/pkg/pick"
	"github.com/warmpath/warmpath/pkg/rewrite"
)

// generation is all that one spec makes of the picker: from the moment on that the
// spec is applied until the last request that began under it has let go. Parts that
// a change of the spec does not concern go on in the next generation. The load of
// the workers is not here: it is one for all generations, so that requests of an
// older one go on to count.
type generation struct {
	spec      *v1alpha1.RoutingPolicySpec
	events    *events
	tokenizer *promptTokens  // nil when turned off
	metrics   *engineMetrics // likewise
	guesses   *index.Speculation
	texts     *index.Speculation // of prompts without token ids
	picker    *pick.Picker
	handoff   extproc.Handoff
	rewrites  *rewrite.Rules

	unused chan struct{} // closed when another one is in use and no request needs it
}

// newGeneration builds what a spec needs. What it shares with an older generation,
// if there is one, it takes from that. Nothing is started.
func newGeneration(a *App, spec *v1alpha1.RoutingPolicySpec, old *generation) (g *generation, err error) {
	g = &generation{spec: spec, handoff: handoff(&spec.Handoff), unused: make(chan struct{})}
	if g.rewrites, err = rewrite.New(rewriteRules(spec)); err != nil {
		return nil, fmt.Errorf("modelRewrites: %w", err)
	}
	if old != nil && sameEvents(old.spec, spec) {
		g.events = old.events
	} else if g.events, err = newEvents(a, spec); err != nil {
		return nil, err
	}
	if old != nil && old.events == g.events && sameGuesses(old.spec, spec) {
		g.guesses = old.guesses
	} else {
		g.guesses = newGuesses(spec)
	}
	if old != nil && old.events == g.events && textTTL(old.spec) == textTTL(spec) {
		g.texts = old.texts
	} else {
		g.texts = index.NewApproximation(textTTL(spec), textBytes)
	}
	if old != nil && sameTokenizer(old.spec, spec) {
		g.tokenizer = old.tokenizer
	} else if g.tokenizer, err = newPromptTokens(spec, &a.pool, a.log); err != nil {
		return nil, err
	}
	if old != nil && same(old.spec.EngineMetrics, spec.EngineMetrics) {
		g.metrics = old.metrics
	} else {
		g.metrics = newEngineMetrics(a, &spec.EngineMetrics)
	}
	g.picker = pick.New(g.events.index, g.guesses, a.load, spec.BlockSize)
	g.picker.RememberTexts(g.texts)
	g.picker.SetOptions(pickOptions(spec))
	g.events.picker.CompareAndSwap(nil, g.picker)
	return g, nil
}

// routing is what ext-proc needs of a generation.
func (g *generation) routing() extproc.Routing {
	var tokens extproc.Tokenizer // stays nil, not a nil *promptTokens
	if g.tokenizer != nil {
		tokens = g.tokenizer
	}
	r := extproc.Routing{
		Picker:        g.picker,
		Layout:        layoutOf(g.spec),
		Tokenizer:     tokens,
		DecodeTexts:   g.spec.Tokenizer.InProcess.Enabled(),
		Adapters:      adapters(g.spec),
		TextBlocks:    textTTL(g.spec) > 0,
		IgnoreSalt:    g.spec.CacheSalt == v1alpha1.CacheSaltIgnore,
		Handoff:       g.handoff,
		ClassHeader:   classHeader(&g.spec.Cost),
		SessionHeader: g.spec.SessionAffinity.Header,
		Announcer:     g.events.announcer(g.spec.EventPlane.TellsRouters()),
		Rewrites:      g.rewrites,
		ModelHeader:   g.spec.ModelRewriteHeader,
		Unused:        func() { close(g.unused) },
	}
	admit(&r, &g.spec.Admission)
	return r
}

// parts are the parts that run.
func (g *generation) parts() []*part {
	parts := []*part{&g.events.part}
	if g.tokenizer != nil {
		parts = append(parts, &g.tokenizer.part)
	}
	if g.metrics != nil {
		parts = append(parts, &g.metrics.part)
	}
	return parts
}

// ready says what a generation waits for before requests are welcome.
func (g *generation) ready() (missing []error) {
	if err := g.events.ready(); err != nil {
		missing = append(missing, err)
	}
	if g.tokenizer != nil {
		if err := g.tokenizer.ready(); err != nil {
			missing = append(missing, err)
		}
	}
	return missing
}

// sameEvents says whether what is known of workers under one spec holds under
// another. The block size is not part of it: workers tell of their blocks, whatever
// we take their size to be.
func sameEvents(a, b *v1alpha1.RoutingPolicySpec) bool {
	if hears(a) != hears(b) {
		return false
	}
	if !connects(a) || !connects(b) {
		return connects(a) == connects(b)
	}
	x, y := a.EventPlane, b.EventPlane
	for _, e := range []*v1alpha1.EventPlaneSpec{&x, &y} {
		e.SpeculationTTL, e.WarmUp.Timeout = nil, nil // of guesses; of plane that starts
	}
	return same(x, y)
}

// sameTokenizer says whether a tokenizer for one spec is one for another.
func sameTokenizer(a, b *v1alpha1.RoutingPolicySpec) bool {
	return layoutOf(a) == layoutOf(b) && same(a.Tokenizer, b.Tokenizer) &&
		(!a.Tokenizer.InProcess.Enabled() || dynamoStyle(a) == dynamoStyle(b))
}

// same compares what two parts of a spec say, not how.
func same(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}
