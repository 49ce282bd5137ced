package console

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// TimeHelp says how a time is written.
const TimeHelp = "TIME is a duration before now (30m, 2h, 7d), a date (2026-11-01), or a timestamp (2026-11-01T12:00:00Z)"

// ParseDuration parses a duration that may have days: 7d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	d, err := time.ParseDuration(days + "h")
	if err != nil || d > 100*366*time.Hour {
		return 0, errors.Join(err, errors.New("not a duration"))
	}
	d *= 24
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	return d + more, err
}

// Duration is the value of a flag that may have days.
type Duration time.Duration

// Set implements pflag.Value.
func (d *Duration) Set(text string) error {
	v, err := ParseDuration(text)
	if err == nil && v < 0 {
		err = errors.New("is negative")
	}
	*d = Duration(v)
	return err
}

func (d *Duration) String() string {
	v := time.Duration(*d)
	switch {
	case v == 0:
		return "0" // no default is shown
	case v%(24*time.Hour) != 0:
		return v.String()
	}
	return fmt.Sprintf("%dd", v/(24*time.Hour))
}

// Type implements pflag.Value.
func (d *Duration) Type() string { return "duration" }
