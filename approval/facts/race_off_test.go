//go:build !race

package facts_test

import "time"

// hostileLimit is how long one hostile document may take.
const hostileLimit = time.Second
