package telegram

import "github.com/permesso-dev/permesso/approval"

func english() *catalog {
	return &catalog{
		once: "✅ Once", session: "✅ This session", always: "✅ Always", deny: "❌ Deny",
		note: "✎ Allow with a note", change: "✎ Change", ask: "❓ Ask", answer: "✎ Answer",
		showAll: "📄 Show all", undo: "↩ Undo",

		longMenu:   "✂ the options are too long for a message: tap Show all",
		inDocument: "📄 the complete text is in the document below",
		verdicts: map[approval.Verdict]string{
			approval.Approved: "✅ Approved", approval.Denied: "❌ Denied", approval.Answered: "✅ Answered",
			approval.Overridden: "✎ Changed, not run", approval.RequestMore: "❓ Sent back", approval.Cancelled: "⊘ Cancelled by the agent",
			approval.Expired: "⌛ Expired",
		},
		scopes:         map[approval.Scope]string{approval.Session: " for this session", approval.Always: " always"},
		cancelled:      "⊘ Cancelled",
		byAt:           "{verdict} by {by} at {time} ({via})",
		atTime:         "{verdict} at {time}",
		sentToAgent:    "sent to the agent: {text}",
		outcomeFollows: "the outcome follows",
		undone:         "↩ grant revoked: such requests are asked again",
		unknownRequest: "This request is no longer known.",
		askedElsewhere: "This request is now asked in another chat.",
		replaced:       "This card is no longer valid: use the newer one.",

		showing:       "Sending the complete text.",
		buttonExpired: "This button has expired. Write pending to list the pending requests.",
		pleaseWait:    "One moment: saving your answer.",
		unsure:        "Not confirmed: this may or may not have been done. Check before you retry; the error is in the daemon's log.",
		notShown:      "Not all of {id} was shown here yet. Tap Show all first.",

		prompts: map[string]string{
			"4":     "✎ {id} · Reply to this message with your note. The request is allowed once, and the agent gets the note.",
			"5":     "✎ {id} · Reply to this message with your change. Nothing runs, and the agent gets your text.",
			"?":     "❓ {id} · Reply to this message with your question to the agent.",
			verbSay: "✎ {id} · Reply to this message with your answer.",
		},
		placeholders: map[string]string{"4": "note", "5": "change", "?": "question", verbSay: "answer"},

		commands: [][2]string{
			{"pending", "list pending requests"},
			{"last", "show the last decisions"},
			{"grants", "list and revoke grants"},
			{"pause", "pause: nothing runs"},
			{"resume", "end the pause"},
			{"help", "show what you can write here"},
		},

		help: "Tap a button of a card, or reply to the card: 1 once, 2 session, 3 [reason] deny, 4 <note>, 5 <change>, 6 always, ? <question>.\n" +
			"approve <id>, deny <id> [reason], undo <id>: the first digits of the id are enough.\n" +
			"pending: pending requests. last: last decisions. grants: active grants. show <id>: the card of a request.\n" +
			"pause [workspace] [reason]: nothing runs until resume [workspace].\n" +
			"In a group write a slash before these words: /pending.",
		yourID:         "Your id: {id}",
		chatID:         "This chat's id: {id}",
		threadID:       "This topic's id: {id}",
		youDecideIn:    "You can decide for: {workspaces}. Write help to see what you can write.",
		nothingWaits:   "No pending requests.",
		waitingCount:   "Pending: {n}",
		cardAbove:      "⬆ {id}",
		notFound:       "No pending request here matches {id}, or more than one does.",
		nothingYet:     "No decisions yet.",
		noGrants:       "No active grants.",
		oneSession:     "one session",
		grantedBy:      "by {by}, until {until}",
		andMore:        "… and {n} more",
		unavailable:    "Not available here.",
		whichWorkspace: "Which workspace? {workspaces}",
		paused:         "⏸ {workspace}: paused, nothing runs until resume",
		alreadyPaused:  "⏸ {workspace}: already paused",
		resumed:        "▶ {workspace}: resumed, paused requests run now",
		notPaused:      "{workspace} itself is not paused",

		digestTitle: "📋 {n} requests · {workspace} · tap a button to see its card",

		testCard:     "This is only a test: no request is pending.",
		morningTitle: "🌅 {workspace}: in quiet hours {waiting} requests were left pending and {expired} expired",
		feedLine:     "Auto-approved {id}: {rule}",
		feedTitle:    "🤖 {workspace} · allowed by policy",

		reminder:        "⏳ {id} is still pending, until {time}",
		recall:          "⏳ {id} is still pending, until {time}; permesso was restarted",
		documentCaption: "{id}: complete text",
	}
}
