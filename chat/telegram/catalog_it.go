//nolint:misspell // it is Italian, not English misspelt.
package telegram

import "github.com/permesso-dev/permesso/approval"

func italian() *catalog {
	return &catalog{
		once: "✅ Una volta", session: "✅ Questa sessione", always: "✅ Sempre", deny: "❌ Nega",
		note: "✎ Consenti con nota", change: "✎ Modifica", ask: "❓ Chiedi", answer: "✎ Rispondi",
		showAll: "📄 Mostra tutto", undo: "↩ Annulla",

		longMenu:   "✂ le risposte tra cui scegliere sono troppo lunghe per un messaggio: Mostra tutto",
		inDocument: "📄 tutto il contenuto è nel documento qui sotto",
		verdicts: map[approval.Verdict]string{
			approval.Approved: "✅ Approvato", approval.Denied: "❌ Negato", approval.Answered: "✅ Risposto",
			approval.Overridden: "✎ Modificato, non eseguito", approval.RequestMore: "❓ Rimandato", approval.Cancelled: "⊘ Annullato dall'agente",
			approval.Expired: "⌛ Scaduto",
		},
		scopes:         map[approval.Scope]string{approval.Session: " per questa sessione", approval.Always: " sempre"},
		cancelled:      "⊘ Annullato",
		byAt:           "{verdict} da {by} alle {time} ({via})",
		atTime:         "{verdict} alle {time}",
		sentToAgent:    "all'agente: {text}",
		outcomeFollows: "segue l'esito",
		undone:         "↩ revocato: d'ora in poi si chiede di nuovo",
		unknownRequest: "Di questa richiesta non si sa più nulla.",
		askedElsewhere: "Ora lo si chiede altrove.",
		replaced:       "Questa scheda non vale più: cerca quella nuova.",

		showing:       "Ecco tutto.",
		buttonExpired: "Questo pulsante non vale più. Scrivi pending per vedere che cosa aspetta.",
		pleaseWait:    "Un momento: la tua risposta viene registrata.",
		unsure:        "Non è certo che sia stato fatto: non contarci. Il log del gate dice perché.",
		notShown:      "Non tutto di {id} è stato mostrato qui. Tocca prima Mostra tutto.",

		prompts: map[string]string{
			"4":     "✎ {id} · Rispondi a questo messaggio con la tua nota: è consentito una volta, e la nota va all'agente.",
			"5":     "✎ {id} · Rispondi a questo messaggio con ciò che va cambiato: nulla viene eseguito, e le tue parole vanno all'agente.",
			"?":     "❓ {id} · Rispondi a questo messaggio con la tua domanda all'agente.",
			verbSay: "✎ {id} · Rispondi a questo messaggio con la tua risposta.",
		},
		placeholders: map[string]string{"4": "nota", "5": "modifica", "?": "domanda", verbSay: "risposta"},

		commands: [][2]string{
			{"pending", "che cosa aspetta una risposta"},
			{"last", "che cosa è stato deciso"},
			{"grants", "che cosa è ricordato, e come revocarlo"},
			{"pause", "per ora non eseguire nulla"},
			{"resume", "si riprende"},
			{"help", "che cosa si può dire qui"},
		},

		help: "Tocca un pulsante di una scheda, oppure rispondi ad essa: 1 una volta, 2 sessione, 3 [motivo] nega, 4 <nota>, 5 <modifica>, 6 sempre, ? <domanda>.\n" +
			"approve <id>, deny <id> [motivo], undo <id>: bastano le prime cifre dell'id.\n" +
			"pending: che cosa aspetta. last: che cosa è stato deciso. grants: che cosa è ricordato. show <id>: la scheda.\n" +
			"pause [workspace] [motivo] e resume [workspace]: nulla viene eseguito, e si riprende.\n" +
			"In un gruppo scrivi una barra prima di queste parole: /pending.",
		yourID:         "Il tuo id: {id}",
		chatID:         "L'id di questa chat: {id}",
		threadID:       "L'id di questo argomento: {id}",
		youDecideIn:    "Ti si chiede di: {workspaces}. Scrivi help per sapere che cosa puoi dire.",
		nothingWaits:   "Nulla aspetta.",
		waitingCount:   "In attesa: {n}",
		cardAbove:      "⬆ {id}",
		notFound:       "Nulla di ciò che aspetta qui corrisponde a {id}, o più di una cosa.",
		nothingYet:     "Nulla è stato ancora deciso.",
		noGrants:       "Nulla è ricordato: ogni richiesta è giudicata da sé.",
		oneSession:     "una sessione",
		grantedBy:      "da {by}, fino a {until}",
		andMore:        "… e altre {n}",
		unavailable:    "Qui non si può.",
		whichWorkspace: "Quale? {workspaces}",
		paused:         "⏸ {workspace}: in pausa, nulla viene eseguito fino a resume",
		alreadyPaused:  "⏸ {workspace} era già in pausa",
		resumed:        "▶ {workspace}: si riprende, quel che era in attesa viene eseguito",
		notPaused:      "{workspace} non è in pausa di per sé",

		digestTitle: "📋 {n} richieste · {workspace} · un pulsante per ciascuna mostra di che si tratta",

		testCard:     "È solo una prova: dietro questa scheda non aspetta nulla.",
		morningTitle: "🌅 {workspace}: stanotte {waiting} richieste sono rimaste in attesa e {expired} sono scadute",
		feedLine:     "Approvato da sé {id}: {rule}",
		feedTitle:    "🤖 {workspace} · consentito dalla policy",

		reminder:        "⏳ {id} aspetta ancora, fino alle {time}",
		recall:          "⏳ {id} aspetta ancora, fino alle {time}; il gate è stato assente per un momento",
		documentCaption: "{id}: tutto",
	}
}
