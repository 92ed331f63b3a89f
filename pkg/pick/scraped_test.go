package pick_test

import (
	"testing"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/load"
	"github.com/warmpath/warmpath/pkg/pick"
)

// TestScrapedQueue: a worker of which nobody told anything, but which says that
// it is full, gets less than its share, whatever the model of cost.
func TestScrapedQueue(t *testing.T) {
	const picks = 400
	for _, model := range []pick.Model{pick.Congestion, pick.Dynamo} {
		for name, full := range map[string]load.Scraped{
			"queue and blocks": {At: start, Waiting: 500, Running: 256, KVUse: 0.99, KVBlocks: 1000},
			"queue":            {At: start, Waiting: 500, Running: -1, KVUse: -1, KVBlocks: -1},
			"blocks":           {At: start, Waiting: -1, Running: -1, KVUse: 0.99, KVBlocks: 1000},
		} {
			r := newRig(t, 0, worker(1, fleet.Aggregated), worker(2, fleet.Aggregated))
			o := pick.DefaultOptions()
			o.Model = model
			r.picker.SetOptions(o)
			engines := load.NewEngines()
			engines.Retain(r.picker.Fleet())
			engines.Feed(r.load)
			engines.Scraped(fleet.Key{ID: 1}, full)
			got := 0
			for range picks {
				d := r.mustPick(t, pick.Request{Tokens: 1600})
				if d.Prefill.ID == 1 {
					got++
				}
				d.Reservation.Release()
			}
			if got > picks/4 {
				t.Errorf("%v, %s: a worker that is full gets %d of %d requests", model, name, got, picks)
			}
		}
	}
}
