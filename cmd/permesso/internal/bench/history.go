package main

import (
	"fmt"
	"io"
	osexec "os/exec"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/audit"
)

const historyRequests = 100_000 // in the log

// history measures complete runs of history commands on a log of 100,000 requests.
func (b *bench) history() error {
	r, err := b.newRig("history")
	if err != nil {
		return err
	}
	if err := r.writeHistory(historyRequests); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"history"},
		{"history", "--by", "nomatch"}, // reads all of them
		{"history", "--all", "--json"},
		{"stats", "--json"},
	} {
		var best []time.Duration
		for range 5 {
			c := osexec.Command(b.bin, append(args, "--home", r.layout.Home)...)
			c.Stdout = io.Discard
			began := time.Now()
			if err := c.Run(); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
			}
			best = append(best, time.Since(began))
		}
		took := quantile(best, 0.5)
		b.add(strings.Join(args, " ")+" over 100,000", took.Round(time.Millisecond).String(), "≤ 500ms", took <= 500*time.Millisecond)
	}
	return nil
}

// writeHistory writes the log of n requests of the last month: a person decided
// three of four, and denied every tenth.
func (r *rig) writeHistory(n int) error {
	log, err := audit.Open(r.fs, r.layout.Audit(), time.Now)
	if err != nil {
		return err
	}
	first := time.Now().Add(-30 * 24 * time.Hour).UTC()
	for i := range n {
		at := first.Add(time.Duration(i) * 30 * 24 * time.Hour / time.Duration(n))
		for _, e := range historyEntries(i, at) {
			log.Note(e)
		}
	}
	return log.Close()
}

func historyEntries(i int, at time.Time) []approval.Entry {
	e := approval.Entry{
		Time: at, Workspace: workspace, RequestID: id(i), Tool: "x_post", Capability: "channel:out",
		Target: fmt.Sprintf("x.com/user-%d", i%500), ClientID: "ws:" + workspace, SessionID: "sess_123", Rule: "rule 1",
	}
	with := func(event approval.Event, after time.Duration) approval.Entry {
		e := e
		e.Event, e.Time = event, at.Add(after)
		return e
	}
	receipt := approval.Digest([]byte(e.RequestID))
	if i%4 == 0 {
		e.ReceiptSHA256, e.Tool = receipt, "read_calendar"
		return []approval.Entry{with(approval.EventAutoApproved, 0), with(approval.EventExecuted, time.Second)}
	}
	asked := with(approval.EventRequested, 0)
	e.By, e.ByID, e.Via = "ann", "telegram:123456789", "telegram"
	if i%10 == 1 {
		return []approval.Entry{asked, with(approval.EventDeniedByUser, 20*time.Second)}
	}
	e.ReceiptSHA256 = receipt
	return []approval.Entry{asked, with(approval.EventApproved, 10*time.Second), with(approval.EventExecuted, 12*time.Second)}
}
