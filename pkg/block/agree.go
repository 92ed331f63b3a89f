package block

// Agree returns how many chains two prompts share. A chain stands for all before
// it, so they agree up to some point and never after it.
func Agree(a, b []Chain) int {
	low, high := 0, min(len(a), len(b))
	if high > 0 && a[high-1] == b[high-1] {
		return high
	}
	for low < high { // all before low are equal, none from high on
		if mid := int(uint(low+high) / 2); a[mid] == b[mid] {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
