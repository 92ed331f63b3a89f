package pick

// Busy says whether a bound leaves the candidate out. It has no costs then.
func (t *Terms) Busy() bool { return t.out }
