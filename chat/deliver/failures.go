package deliver

import (
	"fmt"
	"time"
)

// warnAfter is how long a transient failure lasts before the operator is warned.
const warnAfter = 20 * time.Second

// jobFinished gets the result of every outbox job.
func (s *session) jobFinished(chatID ID, err error) {
	switch class := ClassOf(err); {
	case err == nil, class == Gone: // people delete messages, too
		s.warnings.clear(chatWarning(chatID))
		s.warnings.clear("sending")
		s.reached.Do(s.warnings.publishAgain) // a report of an earlier session may be outdated
	case serviceFailed(err):
		s.warnings.set("sending", s.Name+": cannot send: "+err.Error(), hintFor(err))
	case class == Unreachable:
		s.warnUnreachable(chatID, err)
	case class == BadCredentials:
		s.warnings.set("sending", err.Error(), hintFor(err))
	case never(err):
		s.warnings.set("sending", fmt.Sprintf("%s rejected a message: %v", s.traits.Service, err), "this is a bug in permesso, please report it; decide the pending requests on another channel")
		s.log(fmt.Errorf("send to chat %s: %w", chatID, err))
	default:
		s.reportFailure("sending", err)
	}
}

func (s *session) warnUnreachable(chatID ID, err error) {
	s.warnings.set(chatWarning(chatID), fmt.Sprintf("%s chat %s is unreachable: %v", s.traits.Service, chatID, err), hintFor(err))
}

const chatWarningPrefix = "chat "

func chatWarning(chatID ID) string { return chatWarningPrefix + string(chatID) }

// reportFailure logs a transient failure, and warns the operator once it has lasted.
func (s *session) reportFailure(name string, err error) {
	lasts, log := s.warnings.failing(name, s.now())
	if log {
		s.log(fmt.Errorf("%s: %w", name, err))
	}
	if lasts >= warnAfter/firstRetry*s.outbox.retryUnit {
		s.warnings.set(name, fmt.Sprintf("%s is unreachable: %v", s.traits.Service, err), fmt.Sprintf("check the network; pending cards are sent as soon as %s is reachable", s.traits.Service))
	}
}
