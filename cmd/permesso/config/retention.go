package config

import "time"

// Retention is how long documents are kept after their request has ended.
type Retention struct {
	Responses time.Duration
	Records   time.Duration // at least as long
}

const (
	maxRetention = 100 * maxWait
	daysHint     = `write it with its unit: "90d", "36h"`
)

// retention reads [retention]. Records must be kept at least as long as responses,
// because a response is verified and restored from its record.
func (s *section) retention() {
	sub := s.table("retention")
	if sub == nil {
		return // refused
	}
	r := Retention{sub.duration("responses"), sub.duration("records")}
	if !sub.has("records") {
		r.Records = max(r.Records, r.Responses)
		sub.showDefault("records", short(r.Records))
	}
	if r.Records < r.Responses {
		sub.fail(sub.position("records"), "records", "a response is restored from its record", "records must be kept at least as long as responses")
	}
	s.cfg.Retention = r
}
