package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warmpath/warmpath/pkg/fleet"
	"github.com/warmpath/warmpath/pkg/modelfiles"
)

// cards returns the model cards in discovery.
func (s *Stack) cards(t *testing.T) []modelfiles.Card {
	t.Helper()
	objects, err := s.discovered("mdc")
	if err != nil {
		t.Fatal(err)
	}
	var cards []modelfiles.Card
	for key, object := range objects {
		card, err := modelfiles.ParseCard(object)
		if err != nil {
			t.Fatalf("card %s: %v\n%s", key, err, object)
		}
		cards = append(cards, card)
	}
	if want := len(s.workers); len(cards) != want {
		t.Fatalf("%d cards for %d workers", len(cards), want)
	}
	return cards
}

func fetch(t *testing.T, cards ...modelfiles.Card) (*modelfiles.Files, error) {
	t.Helper()
	w, err := modelfiles.NewWorker(modelfiles.WorkerConfig{Cards: cards, Net: modelfiles.Net{Attempts: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithDeadline(t)
	defer cancel()
	return w.Fetch(ctx)
}

// refusedFiles checks that files are refused for this reason, in these words.
func refusedFiles(t *testing.T, err error, code modelfiles.Code, words ...string) {
	t.Helper()
	if modelfiles.CodeOf(err) != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

// TestFilesOfAWorker takes the model's files from workers that serve them, and
// compares them with those on the workers' disk.
func TestFilesOfAWorker(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: StartNATS(t), ServeFiles: true,
			Roles: map[fleet.Role]int{fleet.Aggregated: 2},
		})
		cards := s.cards(t)
		disk, err := (&modelfiles.Directory{Path: s.Model()}).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, card := range cards {
			f, err := fetch(t, card)
			if err != nil {
				t.Fatal(err)
			}
			if !f.Verified {
				t.Error("not verified")
			}
			if len(f.Tokenizer) == 0 || len(f.Config) == 0 || len(f.GenerationConfig) == 0 || len(f.ModelConfig) == 0 {
				t.Error("a file is missing")
			}
			want := *disk
			want.Source, want.Verified = f.Source, true
			want.Since13 = version != "1.2.1" // which its card tells
			if diff := cmp.Diff(&want, f); diff != "" {
				t.Errorf("files (-disk +worker):\n%s", diff)
			}
			if err := card.Verify(disk); err != nil {
				t.Error(err)
			}
		}

		// One of two is enough.
		s.workers[0].kill(t)
		if _, err := fetch(t, cards...); err != nil {
			t.Errorf("with one worker gone: %v", err)
		}

		// A worker serves what is on its disk now, and its card does not change.
		path := filepath.Join(s.Model(), "tokenizer_config.json")
		if err := os.WriteFile(path, append(disk.Config, ' '), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = fetch(t, cards...)
		refusedFiles(t, err, modelfiles.BadChecksum, "tokenizer_config.json")
		if disk, err = (&modelfiles.Directory{Path: s.Model()}).Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		refusedFiles(t, cards[0].Verify(disk), modelfiles.BadChecksum, "tokenizer_config.json")
	})
}

// TestWorkerServesNoFiles: the card then names a path on the worker's own disk.
func TestWorkerServesNoFiles(t *testing.T) {
	forEachVersion(t, func(t *testing.T, version string) {
		s := StartStack(t, StackConfig{
			Version: version, NATSURL: StartNATS(t), Roles: map[fleet.Role]int{fleet.Aggregated: 1},
		})
		_, err := fetch(t, s.cards(t)...)
		refusedFiles(t, err, modelfiles.NotServed, "tokenizer.json", "DYN_SELF_HOST_METADATA=1")
	})
}
