package telegram

import "github.com/permesso-dev/permesso/approval"

func english() *catalog {
	return &catalog{
		once: "✅ Once", session: "✅ This session", always: "✅ Always", deny: "❌ Deny",
		note: "✎ Allow with a note", change: "✎ Change", ask: "❓ Ask", answer: "✎ Answer",
		showAll: "📄 Show all", undo: "↩ Undo",

		longMenu:   "✂ the answers to choose from are too long for a message: Show all",
		inDocument: "📄 all of it is in the document below",
		verdicts: map[approval.Verdict]string{
			approval.Approved: "✅ Approved", approval.Denied: "❌ Denied", approval.Answered: "✅ Answered",
			approval.Overridden: "✎ Changed, not run", approval.RequestMore: "❓ Sent back", approval.Cancelled: "⊘ Cancelled by the agent",
			approval.Expired: "⌛ Expired",
		},
		scopes:         map[approval.Scope]string{approval.Session: " for this session", approval.Always: " always"},
		cancelled:      "⊘ Cancelled",
		byAt:           "{verdict} by {by} at {time} ({via})",
		atTime:         "{verdict} at {time}",
		sentToAgent:    "to the agent: {text}",
		outcomeFollows: "the outcome follows",
		undone:         "↩ taken back: from now on it is asked again",
		unknownRequest: "Nothing is known of this request any more.",
		askedElsewhere: "This is asked elsewhere now.",
		replaced:       "This card no longer holds: look for the newer one.",

		showing:       "Here is all of it.",
		buttonExpired: "This button no longer means anything. Write pending for what waits.",
		pleaseWait:    "One moment: your answer is being written down.",
		unsure:        "That could not be done for certain: do not count on it. The gate's log says why.",
		notShown:      "Not all of {id} was shown here yet. Tap Show all first.",

		prompts: map[string]string{
			"4":     "✎ {id} · Reply to this message with your note: it is allowed once, and the note goes to the agent.",
			"5":     "✎ {id} · Reply to this message with what is to change: nothing runs, and your words go to the agent.",
			"?":     "❓ {id} · Reply to this message with your question to the agent.",
			verbSay: "✎ {id} · Reply to this message with your answer.",
		},
		placeholders: map[string]string{"4": "note", "5": "change", "?": "question", verbSay: "answer"},

		commands: [][2]string{
			{"pending", "what waits for an answer"},
			{"last", "what was decided"},
			{"grants", "what is remembered, and how to take it back"},
			{"pause", "let nothing run for the time being"},
			{"resume", "let it run again"},
			{"help", "what can be said here"},
		},

		help: "Tap a button of a card, or reply to it: 1 once, 2 session, 3 [reason] deny, 4 <note>, 5 <change>, 6 always, ? <question>.\n" +
			"approve <id>, deny <id> [reason], undo <id>: the first digits of the id will do.\n" +
			"pending: what waits. last: what was decided. grants: what is remembered. show <id>: its card.\n" +
			"pause [workspace] [reason] and resume [workspace]: nothing runs, and it runs again.\n" +
			"In a group write a slash before these words: /pending.",
		yourID:         "Your id: {id}",
		chatID:         "This chat's id: {id}",
		threadID:       "This topic's id: {id}",
		youDecideIn:    "You are asked about: {workspaces}. Write help for what you can say.",
		nothingWaits:   "Nothing waits.",
		waitingCount:   "Waiting: {n}",
		cardAbove:      "⬆ {id}",
		notFound:       "Nothing that waits here fits {id}, or more than one does.",
		nothingYet:     "Nothing was decided yet.",
		noGrants:       "Nothing is remembered: every request is judged by itself.",
		oneSession:     "one session",
		grantedBy:      "by {by}, until {until}",
		andMore:        "… and {n} more",
		unavailable:    "That cannot be done here.",
		whichWorkspace: "Which one? {workspaces}",
		paused:         "⏸ {workspace}: paused, nothing runs until resume",
		alreadyPaused:  "⏸ {workspace} was paused before",
		resumed:        "▶ {workspace}: resumed, what was held runs",
		notPaused:      "{workspace} is not paused by itself",

		digestTitle: "📋 {n} requests wait · {workspace} · a button each shows what it is about",

		testCard:     "This is only a test: nothing waits behind this card.",
		morningTitle: "🌅 {workspace}: last night {waiting} requests were left waiting and {expired} expired",
		feedLine:     "Auto-approved {id}: {rule}",
		feedTitle:    "🤖 {workspace} · allowed by policy",

		reminder:        "⏳ {id} still waits, until {time}",
		recall:          "⏳ {id} still waits, until {time}; the gate was away for a moment",
		documentCaption: "{id}: all of it",
	}
}
