package load

// Left returns how much the table keeps for requests under way: runs of shared
// blocks and names.
func (t *Table) Left() (runs, names int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.prefixes.byFirst), len(t.named)
}

// Due returns how many prompts are to come off at a time.
func (t *Table) Due() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dues)
}
