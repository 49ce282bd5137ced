package config

import (
	"strconv"
	"strings"
	"time"
)

// Retention is how long documents are kept after their request has ended.
type Retention struct {
	Responses time.Duration
	Records   time.Duration // at least as long
}

// The defaults of [retention].
const (
	defaultResponses = 7 * dayLong
	defaultRecords   = 90 * dayLong
)

const (
	dayLong      = 24 * time.Hour
	maxRetention = 100 * 366 * dayLong
)

// retention reads [retention]. Records must be kept at least as long as responses,
// because a response is verified and restored from its record.
func (s *section) retention() {
	sub := s.table("retention", `[retention] with responses = "7d" and records = "90d"`)
	if sub == nil {
		return
	}
	r := &s.cfg.Retention
	r.Responses = sub.dayDuration("responses", r.Responses, time.Hour)
	r.Records = sub.dayDuration("records", max(r.Records, r.Responses), dayLong)
	if r.Records < r.Responses {
		sub.fail(sub.node.children["records"].val, "records", "a response is restored from its record", "records must be kept at least as long as responses")
	}
	sub.rejectUnknown()
}

// dayDuration is a duration that may be given in days.
func (s *section) dayDuration(key string, def, least time.Duration) time.Duration {
	const hint = `write it with its unit: "90d", "36h"`
	n := s.get(key, text, hint)
	if n == nil {
		return def
	}
	d, err := time.ParseDuration(n.text)
	if days, ok := strings.CutSuffix(n.text, "d"); ok {
		var count uint64
		count, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(count) * dayLong
	}
	if err != nil {
		s.fail(n.val, key, hint, "%s is not a duration", key)
		return def
	}
	if d < least || d > maxRetention {
		s.fail(n.val, key, "", "%s must be %s to 36600d", key, short(least))
		return def
	}
	return d
}
