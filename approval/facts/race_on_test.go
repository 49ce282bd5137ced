//go:build race

package facts_test

import "time"

// hostileLimit is how long one hostile document may take. The race detector makes
// it about ten times slower.
const hostileLimit = 10 * time.Second
