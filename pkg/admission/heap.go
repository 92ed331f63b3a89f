package admission

// Each item knows its place in every heap that it may be in.
const (
	byNeed   = iota // of its flow: the order of the policy
	byAge           // of its flow: longest wait first
	byRecent        // of its flow: shortest wait first
	numHeaps
)

// nowhere is the place of an item that is not in a heap.
const nowhere = -1

// heap is a binary heap of items from which any of them can be taken.
type heap struct {
	items []*Item
	which int // the place of items that it keeps
	less  func(a, b *Item) bool
}

// first returns the least item, nil when there is none.
func (h *heap) first() *Item {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) push(it *Item) {
	h.items = append(h.items, it)
	h.up(len(h.items) - 1)
}

// remove takes an item out, if it is in.
func (h *heap) remove(it *Item) {
	at := it.at[h.which]
	if at == nowhere {
		return
	}
	last := len(h.items) - 1
	moved := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	it.at[h.which] = nowhere
	if at < last {
		h.set(at, moved)
		h.down(at)
		h.up(moved.at[h.which])
	}
}

func (h *heap) set(at int, it *Item) {
	h.items[at] = it
	it.at[h.which] = at
}

func (h *heap) up(at int) {
	it := h.items[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !h.less(it, h.items[parent]) {
			break
		}
		h.set(at, h.items[parent])
		at = parent
	}
	h.set(at, it)
}

func (h *heap) down(at int) {
	it := h.items[at]
	for {
		child := 2*at + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], it) {
			break
		}
		h.set(at, h.items[child])
		at = child
	}
	h.set(at, it)
}
