package secrets_test

import (
	"strings"
	"testing"

	"github.com/permesso-dev/permesso/approval"
)

func BenchmarkScan4KiB(b *testing.B) {
	plain := strings.Repeat("Dear Bob, we meet at five in the garden. ", 100)[:4096]
	words := plain[:2000] + " the api token and the secret key are in the password store, github auth " + plain[2100:]
	s := scanner(b)
	for name, text := range map[string]string{"plain": plain, "keywords": words} {
		f := &approval.Facts{Args: approval.Raw(`{"to":"bob@example.org","subject":"five","body":` + quoted(text) + `}`)}
		s.Scan(f)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Scan(f)
			}
		})
	}
}
