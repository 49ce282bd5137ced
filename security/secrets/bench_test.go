package secrets_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/secrets"
)

// The figures that make bench prints: see cmd/permesso/internal/bench.

func BenchmarkScan4KiB(b *testing.B) {
	plain := strings.Repeat("Dear Bob, we meet at five in the garden. ", 100)[:4096]
	words := plain[:2000] + " the api token and the secret key are in the password store, github auth " + plain[2100:]
	s := scanner(b)
	for _, row := range []struct{ name, text, metric string }{
		{"without a keyword", plain, ":µs<=1000"},
		{"with keywords", words, ":µs<=5000"},
	} {
		f := &approval.Facts{Args: approval.Raw(`{"to":"bob@example.org","subject":"five","body":` + quoted(row.text) + `}`)}
		s.Scan(f)
		b.Run("secret scan of 4 KiB, "+row.name, func(b *testing.B) {
			for b.Loop() {
				s.Scan(f)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), row.metric)
		})
	}
}

func BenchmarkScan256KiB(b *testing.B) {
	s := scanner(b)
	for _, d := range secrets.Documents() {
		p := &approval.Pending{RequestData: approval.Raw(d.Args)}
		b.Run("secrets of 256 KiB, "+d.Name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				p.Agent.Title = fmt.Sprint(n) // nothing of the last search serves
				s.Redactor(p)
			}
			perRun := float64(b.Elapsed().Microseconds()) / float64(b.N)
			b.ReportMetric(perRun, fmt.Sprintf(":µs<=%d", d.Microseconds))
		})
	}
}

func BenchmarkRecall(b *testing.B) {
	b.Run("secrets found", func(b *testing.B) {
		for b.Loop() {
			for form, n := range recall(b, scanner(b), 3) {
				limit := ">=90"
				if form == "plain" {
					limit = ">=95"
				}
				b.ReportMetric(100*float64(n[0])/float64(n[1]), form+":%"+limit)
			}
		}
	})
	b.Run("secrets found where there are none", func(b *testing.B) {
		for b.Loop() {
			all := negatives(b)
			b.ReportMetric(100*float64(len(falseAlarms(b, all)))/float64(len(all)), ":%<=1")
		}
	})
}
