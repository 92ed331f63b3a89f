package eventplane

import "testing"

// whenShown does something the moment that it is written down.
type whenShown func()

func (f whenShown) String() string {
	f()
	return "something"
}

// TestWarmStaysWarm: who says what a warm-up waits for while that ends does not begin
// it anew.
func TestWarmStaysWarm(t *testing.T) {
	r := newRig(t, "", "dynamo")
	cfg := r.plane.cfg
	cfg.WarmUp = WarmUp{Timeout: patient}
	plane, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &warmUp{plane: plane, ctx: t.Context()}
	w.step("waiting for %v", whenShown(func() {}))
	if got := plane.Warming(); got != "waiting for something" {
		t.Errorf("it says %q", got)
	}
	w.step("waiting for %v", whenShown(w.finish))
	if got := plane.Warming(); got != "" {
		t.Errorf("it is warm, and says %q", got)
	}
}
