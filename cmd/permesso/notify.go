package main

import (
	"context"
	"fmt"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells a service manager how things are, if one listens: the protocol of
// sd_notify(3). A manager that is gone is no reason to stop.
func (s *server) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		s.log.Debug().Err(err).Msg("notify the service manager")
	}
}

func (s *server) notifyReady() {
	s.notify(sd.SdNotifyReady + "\nSTATUS=" + s.inAWord())
}

// notifyReloading is answered by notifyReady, whatever comes of the reload.
func (s *server) notifyReloading() {
	s.notify(sd.SdNotifyReloading + "\n" + sd.SdNotifyMonotonicUsec())
}

// inAWord is the line that systemctl status shows. It has no name that an agent
// chose.
func (s *server) inAWord() string {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	switch r := s.health.report; r.Status {
	case healthPaused:
		return "paused: nothing runs until permesso resume"
	case healthDegraded:
		return fmt.Sprintf("degraded: %d problems, see permesso status", len(r.Problems))
	}
	return fmt.Sprintf("serving %d workspaces", len(s.conf().Workspaces))
}

const (
	pulse = 10 * time.Second
	numb  = "pulse" // the problem of a gate that does not answer
)

// beat feeds the watchdog, and keeps the health report young, for as long as a
// probe comes through the watcher's loop and the gate's scheduler: a ticker
// alone would go on for ever in a program that hangs.
func (s *server) beat(ctx context.Context) {
	every, dog := pulse, false
	if limit, err := sd.SdWatchdogEnabled(false); err == nil && limit > 0 {
		every, dog = min(pulse, limit/2), true
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := s.alive(ctx, every)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Error().Err(err).Msg("the gate does not move")
			s.health.Set(numb, "the gate does not move", "is a disk or a network folder stuck? else restart it")
		default:
			s.health.Clear(numb)
			s.health.Beat()
			if dog {
				s.notify(sd.SdNotifyWatchdog)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *server) alive(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.watcher.Alive(ctx); err != nil {
		return err
	}
	return s.gate.Alive(ctx)
}
