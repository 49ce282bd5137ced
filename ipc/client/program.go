package client

import (
	"context"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// The values of ProgramResult.Main.
const (
	MainReturned = "returned"
	MainNeeds    = "needs" // the program goes on with another request: see NextPart
	MainStopped  = "stopped"
)

// ProgramResult is the result of a program, or of a part of one.
type ProgramResult struct {
	Main          string             `json:"main"`
	Steps         []ProgramStep      `json:"steps"` // of all parts so far
	Guarantees    []ProgramGuarantee `json:"guarantees"`
	NextRequestID string             `json:"next_request_id"` // with MainNeeds
	Undo          string             `json:"undo"`            // a program that undoes what ran; "": none
}

// ProgramStep is one call of a program.
type ProgramStep struct {
	Step    int             `json:"step"` // from 1
	Tool    string          `json:"tool"`
	Status  approval.Status `json:"status"` // or not_run
	Result  approval.Raw    `json:"result"`
	Omitted bool            `json:"result_omitted"` // the result is only in the gate's record
	Error   string          `json:"error"`
	Receipt string          `json:"receipt"` // of a tool that runs nothing on the host
}

// ProgramGuarantee is what a program promises, and whether it is proved.
type ProgramGuarantee struct {
	Guarantee string `json:"guarantee"`
	State     string `json:"state"`
}

// ResultOf is the result of a program; empty if nothing of it ran.
func ResultOf(r *approval.Response) (p ProgramResult) {
	if r.Result.Kind() == '{' {
		_ = codec.DecodeOwn(r.Result, &p) // another one is that of a tool
	}
	return p
}

// NextPart is the request that goes on with a program after a part of it; false if the program has ended.
func NextPart(r approval.Request, part *approval.Response) (approval.Request, bool) {
	p := ResultOf(part)
	if Approved(part) != nil || p.Main != MainNeeds {
		return r, false
	}
	r.RequestID, r.Continues, r.Resubmits = p.NextRequestID, part.RequestID, ""
	return r, true
}

// Run submits a program and waits for its end, and goes on with it while it needs the results of its calls. It returns the
// ends of its parts in order, also with an error. With the same RequestID, a program that was left goes on where it was.
func Run(ctx context.Context, g Client, r approval.Request) (parts []*approval.Response, err error) {
	for more := true; more; {
		asked, err := g.Ask(ctx, r)
		if err != nil {
			return parts, err
		}
		end, err := g.Await(ctx, asked)
		if err != nil {
			return parts, err
		}
		parts = append(parts, end)
		r, more = NextPart(r, end)
	}
	return parts, nil
}
