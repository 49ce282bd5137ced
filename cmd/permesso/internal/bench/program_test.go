package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/program"
)

// hundredCalls is a program of 100 calls with two guarantees.
const hundredCalls = `def main():
    guarantee(at_most(tools.send_email, 100), unique(tools.send_email, "to"))
    for i in range(100):
        tools.send_email(to = ["a%d@example.com" % i], body = "hello")
`

type evaluate func(context.Context, approval.ProgramJob, func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error)

// BenchmarkProgram measures how long the plan of a program takes, with the check of what it guarantees. It waits for no disk.
func BenchmarkProgram(b *testing.B) {
	b.Run("program: plan of 100 calls in a process of its own, median", func(b *testing.B) {
		reportMS(b, "", planTime(b, (&exec.Planner{}).Evaluate), "<=20")
	})
	b.Run("program: the same without a process, median", func(b *testing.B) {
		reportMS(b, "", planTime(b, program.Evaluate), "<=2")
	})
}

// planTime is the median time of a plan.
func planTime(b *testing.B, plan evaluate) time.Duration {
	job := approval.ProgramJob{Source: hundredCalls, Tools: map[string]map[string]approval.Argument{
		"send_email": {"to": {Type: "recipients"}, "body": {}},
	}}
	var took []time.Duration
	for b.Loop() {
		calls, began := 0, time.Now()
		e, err := plan(b.Context(), job, func(approval.Call) (approval.Answer, error) {
			calls++
			return approval.Answer{}, nil
		})
		took = append(took, time.Since(began))
		require.NoError(b, err)
		require.Equal(b, 100, calls)
		require.Equal(b, approval.GuaranteeProved, e.Guarantees[1].State)
	}
	return quantile(took, 0.5)
}
