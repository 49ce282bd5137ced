package facts_test

import (
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

const (
	someID = "a7f3b2c1d4e5f6a7"
	// maxError bounds errors about untrusted bytes.
	maxError = 300
)

func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// nested is an object of n levels.
func nested(n int) string { return strings.Repeat(`{"a":`, n-1) + "{}" + strings.Repeat("}", n-1) }

// request is a small valid request with more members appended.
func request(more ...string) string {
	members := append([]string{`"request_id":"` + someID + `"`, `"tool_name":"x_post"`}, more...)
	return "{" + strings.Join(members, ",") + "}"
}

// argTypes declares arguments: names, each followed by its type.
func argTypes(pairs ...string) map[string]approval.Argument {
	args := map[string]approval.Argument{}
	for i := 0; i < len(pairs); i += 2 {
		args[pairs[i]] = approval.Argument{Type: pairs[i+1]}
	}
	return args
}
