package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// sharePairs is the number of bursts of each kind. The speed of a machine varies
// over minutes by more than the target.
const sharePairs = 7

// auditShare compares bursts with and without tree and checkpoints in the log. They
// alternate, and the order in a pair changes.
func (b *bench) auditShare() error {
	var signed, plain []time.Duration
	for i := range sharePairs {
		for j := range 2 {
			unsigned := (i+j)%2 == 1
			took, err := b.burstOf(burstSize, fmt.Sprintf("share-%d-%d", i, j), unsigned)
			if err != nil {
				return err
			}
			if unsigned {
				plain = append(plain, took)
			} else {
				signed = append(signed, took)
			}
		}
	}
	with, without := quantile(signed, 0.5), quantile(plain, 0.5)
	share := 100 * (with.Seconds()/without.Seconds() - 1)
	b.add("tree and checkpoints, added to the burst", fmt.Sprintf("%+.1f %% (%v on %v)", share,
		(with-without).Round(100*time.Microsecond), without.Round(time.Millisecond)), "≤ 5 %", share <= 5)
	return nil
}

const logEntries = 1_000_000

// auditVerify measures the verification of a log of a million entries, four for each
// request.
func (b *bench) auditVerify() error {
	r, err := b.newRig("verify")
	if err != nil {
		return err
	}
	signer, err := receipt.LoadOrCreate(r.fs, r.layout.Keys(), "bench")
	if err != nil {
		return err
	}
	verifier, err := signer.Verifier()
	if err != nil {
		return err
	}
	log, err := audit.OpenSigned(r.fs, r.layout.Audit(), time.Now, audit.Keys{Signer: signer.NoteSigner(), Known: verifier.Known()})
	if err != nil {
		return err
	}
	for i := range logEntries {
		log.Note(historyEntry(i))
		if i%1000 == 999 {
			if err := log.Checkpoint(); err != nil {
				return err
			}
		}
	}
	if err := log.Close(); err != nil {
		return err
	}
	check := &audit.Check{FS: r.fs, Dir: r.layout.Audit(), Keys: verifier.Known(), Progress: progressLine()}
	began := time.Now()
	report, err := check.Run()
	if err != nil {
		return err
	}
	took := time.Since(began)
	if report.Entries != logEntries || report.Signed != logEntries {
		return fmt.Errorf("%d entries, %d signed", report.Entries, report.Signed)
	}
	b.add("1,000,000 audit entries verified", fmt.Sprintf("%v, %.0f/s, %d checkpoints", took.Round(10*time.Millisecond),
		logEntries/took.Seconds(), report.Checkpoints), "≤ 10 s", took <= 10*time.Second)
	began = time.Now()
	again, err := audit.OpenSigned(r.fs, r.layout.Audit(), time.Now, audit.Keys{Signer: signer.NoteSigner(), Known: verifier.Known()})
	if err != nil {
		return err
	}
	b.add("open such a log", time.Since(began).Round(time.Millisecond).String(), "", true)
	if err := again.Close(); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Dir(r.layout.Audit()))
}

func historyEntry(i int) approval.Entry {
	e := approval.Entry{Workspace: workspace, RequestID: id(i / 4), Tool: "none", Rule: "default"}
	switch i % 4 {
	case 0:
		e.Event, e.Target, e.ActionType = approval.EventRequested, "x.com/ricardo", "send_message"
	case 1:
		e.Event, e.By, e.Via, e.ReceiptSHA256 = approval.EventApproved, "telegram:123456789", "telegram", approval.Digest([]byte(id(i)))
	case 2:
		e.Event, e.By, e.Via, e.ReceiptSHA256 = approval.EventExecuted, "telegram:123456789", "telegram", approval.Digest([]byte(id(i-1)))
	default:
		e.Event, e.Reason = approval.EventDeniedByUser, "Denied by user: perché no"
	}
	return e
}

// progressLine shows progress as audit verify does.
func progressLine() func(done, total int64) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func(int64, int64) {}
	}
	return func(done, total int64) {
		fmt.Fprintf(os.Stderr, "\rverifying %d %%", 100*done/total)
		if done == total {
			fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
	}
}
