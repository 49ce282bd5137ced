//go:build !race

package approval_test

import "time"

// hostileLimit is how long one hostile document may take.
const hostileLimit = time.Second
