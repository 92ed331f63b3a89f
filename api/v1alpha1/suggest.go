package v1alpha1

import "strings"

// Suggest returns a hint for a name that is not one of known, to be put behind it:
// the one name that was likely meant, else all of them.
func Suggest(name string, known []string) string { return suggest(name, known) }

// suggest returns a hint for a name that is not one of known: the one name that
// was likely meant, else all of them.
func suggest(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return "did you mean " + k + "?"
		}
		// Short names are close to everything: ask for more likeness there.
		if n := distance(name, k); n < least && 2*n < len(k) {
			best, least = k, n
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}

// distance is the number of bytes to insert, remove or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
