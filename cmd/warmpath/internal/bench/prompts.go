package bench

import (
	"math/rand/v2"
	"slices"

	"github.com/warmpath/warmpath/pkg/block"
	"github.com/warmpath/warmpath/pkg/kvevent"
)

// The prompts of the index benchmarks follow the measurement of peers (peers.md
// sections A and E): 10,000 prompts of 128 blocks over 16 system prompts of 32
// blocks, and 64 prompts of 1,000 blocks.
const (
	shortPrompts = 10_000
	shortBlocks  = 128
	longPrompts  = 64
	longBlocks   = 1000
	sharedBlocks = 32
	perEvent     = 16
	// branchLevels and branchFan make the branchy prompts: at each level a group
	// of prompts splits into that many, so a prompt has about ten branch points.
	branchLevels = 10
	branchFan    = 2.5
)

// prompts are content hashes and prefix chains, one list per prompt.
type prompts struct {
	hashes [][]block.Hash
	chains [][]block.Chain
}

func (p *prompts) add(hashes []block.Hash) {
	p.hashes = append(p.hashes, hashes)
	p.chains = append(p.chains, block.AppendChains(nil, hashes))
}

// freshHashes are contents that nobody has yet.
func freshHashes(random *rand.Rand, n int) []block.Hash {
	list := make([]block.Hash, n)
	for i := range list {
		list[i] = block.Hash(random.Uint64())
	}
	return list
}

// newPrompts makes short and long prompts; of branchy ones all are short.
func newPrompts(seed uint64, short, long int, branchy bool) *prompts {
	random := rand.New(rand.NewPCG(seed, 7))
	fresh := func(n int) []block.Hash { return freshHashes(random, n) }
	p := &prompts{}
	if branchy {
		p.branch(fresh, short)
		return p
	}
	var shared [systems][]block.Hash
	for i := range shared {
		shared[i] = fresh(sharedBlocks)
	}
	for i := range short {
		p.add(append(append([]block.Hash{}, shared[i%systems]...), fresh(shortBlocks-sharedBlocks)...))
	}
	for range long {
		p.add(fresh(longBlocks))
	}
	return p
}

// branch adds n prompts that split level by level.
func (p *prompts) branch(fresh func(int) []block.Hash, n int) {
	const perLevel = shortBlocks / branchLevels
	type node struct{ level, group int }
	nodes := map[node][]block.Hash{}
	for i := range n {
		var hashes []block.Hash
		group := float64(n)
		for level := range branchLevels {
			length := perLevel
			if level == branchLevels-1 {
				length = shortBlocks - perLevel*(branchLevels-1)
			}
			k := node{level, int(float64(i) / max(1, group))}
			if nodes[k] == nil {
				nodes[k] = fresh(length)
			}
			hashes = append(hashes, nodes[k]...)
			group /= branchFan
		}
		p.add(hashes)
	}
}

// events returns what one worker tells that stores a prompt. Engine hashes are
// the chains, mixed with the worker's id, since they differ from worker to worker.
func (p *prompts) events(prompt int, worker uint64, firstID uint64) []kvevent.Event {
	hashes, chains := p.hashes[prompt], p.chains[prompt]
	engine := func(c block.Chain) kvevent.EngineHash {
		return kvevent.EngineHash(uint64(c) ^ worker*0x9e3779b97f4a7c15)
	}
	var events []kvevent.Event
	for i := 0; i < len(hashes); i += perEvent {
		ev := kvevent.Event{WorkerID: worker, ID: firstID + uint64(len(events)), Kind: kvevent.Stored}
		if i > 0 {
			ev.HasParent, ev.Parent = true, engine(chains[i-1])
		}
		for j := i; j < min(i+perEvent, len(hashes)); j++ {
			ev.Blocks = append(ev.Blocks, kvevent.Block{Engine: engine(chains[j]), Hash: hashes[j]})
		}
		events = append(events, ev)
	}
	return events
}

// removal is the event that takes away what another one stored, the last block
// first.
func removal(ev *kvevent.Event, id uint64) *kvevent.Event {
	gone := &kvevent.Event{WorkerID: ev.WorkerID, ID: id, Kind: kvevent.Removed}
	for _, b := range slices.Backward(ev.Blocks) {
		gone.Gone = append(gone.Gone, b.Engine)
	}
	return gone
}

// eventLoad is all events that fill an index, by worker.
type eventLoad struct {
	byWorker [][]kvevent.Event
	blocks   int // in stored events, duplicates included
	each     int // workers that hold a prompt
}

// place lets every prompt be stored by some workers.
func (p *prompts) place(workers, holders int) *eventLoad {
	l := &eventLoad{byWorker: make([][]kvevent.Event, workers), each: min(holders, workers)}
	for i := range p.hashes {
		for _, w := range l.holders(i) {
			events := p.events(i, worker(w).ID, uint64(len(l.byWorker[w])+1))
			l.byWorker[w] = append(l.byWorker[w], events...)
			l.blocks += len(p.hashes[i])
		}
	}
	return l
}

// holders are the workers that hold a prompt, lowest first.
func (l *eventLoad) holders(prompt int) []int {
	list := make([]int, l.each)
	for h := range list {
		list[h] = (prompt*l.each + h) % len(l.byWorker)
	}
	slices.Sort(list)
	return list
}
