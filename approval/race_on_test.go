//go:build race

package approval_test

import "time"

// hostileLimit is how long one hostile document may take; the race detector
// makes every step some ten times as dear.
const hostileLimit = 10 * time.Second
