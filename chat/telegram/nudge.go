package telegram

import (
	"github.com/go-telegram/bot/models"

	"github.com/permesso-dev/permesso/approval"
)

func (s *session) nudge(approval.Key, *page, scene) error { return nil }

func (s *session) unasked([]approval.Waiting) {}

func (s *session) membership(*models.ChatMemberUpdated) {}
