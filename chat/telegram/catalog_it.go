//nolint:misspell // it is Italian, not misspelled English.
package telegram

import "github.com/permesso-dev/permesso/approval"

func italian() *catalog {
	return &catalog{
		once: "✅ Una volta", session: "✅ Questa sessione", always: "✅ Sempre", deny: "❌ Nega",
		note: "✎ Consenti con nota", change: "✎ Modifica", ask: "❓ Chiedi", answer: "✎ Rispondi",
		showAll: "📄 Mostra tutto", undo: "↩ Annulla",

		longMenu:   "✂ le opzioni sono troppo lunghe per un messaggio: tocca Mostra tutto",
		inDocument: "📄 il testo completo è nel documento qui sotto",
		verdicts: map[approval.Verdict]string{
			approval.Approved: "✅ Approvato", approval.Denied: "❌ Negato", approval.Answered: "✅ Risposto",
			approval.Overridden: "✎ Modificato, non eseguito", approval.RequestMore: "❓ Rimandato all'agente", approval.Cancelled: "⊘ Annullato dall'agente",
			approval.Expired: "⌛ Scaduto",
		},
		scopes:         map[approval.Scope]string{approval.Session: " per questa sessione", approval.Always: " sempre"},
		cancelled:      "⊘ Annullato",
		byAt:           "{verdict} da {by} alle {time} ({via})",
		atTime:         "{verdict} alle {time}",
		sentToAgent:    "inviato all'agente: {text}",
		outcomeFollows: "l'esito arriverà qui",
		undone:         "↩ consenso revocato: richieste come questa vanno di nuovo approvate",
		unknownRequest: "Questa richiesta non esiste più.",
		askedElsewhere: "L'approvazione di questa richiesta ora si chiede in un'altra chat.",
		replaced:       "Questa scheda non è più valida: usa quella più recente.",

		showing:       "Invio il testo completo.",
		buttonExpired: "Questo pulsante è scaduto. Scrivi pending per vedere le richieste in attesa.",
		pleaseWait:    "Un momento: salvo la tua risposta.",
		unsure:        "Nessuna conferma: non è certo che l'operazione sia riuscita. Verifica prima di riprovare; l'errore è nel log del daemon.",
		notShown:      "{id} non è ancora visibile per intero in questa chat. Tocca prima Mostra tutto.",

		prompts: map[string]string{
			"4":     "✎ {id} · Rispondi a questo messaggio con la tua nota. La richiesta è consentita una volta e la nota va all'agente.",
			"5":     "✎ {id} · Rispondi a questo messaggio con la modifica che vuoi. Non si esegue nulla e il tuo testo va all'agente.",
			"?":     "❓ {id} · Rispondi a questo messaggio con la tua domanda all'agente.",
			verbSay: "✎ {id} · Rispondi a questo messaggio con la tua risposta.",
		},
		placeholders: map[string]string{"4": "nota", "5": "modifica", "?": "domanda", verbSay: "risposta"},

		commands: [][2]string{
			{"pending", "elenca le richieste in attesa"},
			{"last", "mostra le ultime decisioni"},
			{"grants", "elenca e revoca i consensi"},
			{"pause", "metti in pausa: non si esegue nulla"},
			{"resume", "termina la pausa"},
			{"help", "mostra che cosa puoi scrivere qui"},
		},

		help: "Tocca un pulsante di una scheda, oppure rispondi alla scheda: 1 una volta, 2 sessione, 3 [motivo] nega, 4 <nota>, 5 <modifica>, 6 sempre, ? <domanda>.\n" +
			"approve <id>, deny <id> [motivo], undo <id>: bastano le prime cifre dell'id.\n" +
			"pending: le richieste in attesa. last: le ultime decisioni. grants: i consensi attivi. show <id>: la scheda di una richiesta.\n" +
			"pause [workspace] [motivo]: non si esegue nulla fino a resume [workspace].\n" +
			"In un gruppo scrivi una barra prima di queste parole: /pending.",
		yourID:         "Il tuo id: {id}",
		chatID:         "L'id di questa chat: {id}",
		threadID:       "L'id di questo argomento: {id}",
		youDecideIn:    "Puoi decidere per: {workspaces}. Scrivi help per sapere che cosa puoi scrivere.",
		nothingWaits:   "Nessuna richiesta in attesa.",
		waitingCount:   "In attesa: {n}",
		cardAbove:      "⬆ {id}",
		notFound:       "Nessuna richiesta in attesa qui corrisponde a {id}, oppure più di una.",
		nothingYet:     "Ancora nessuna decisione.",
		noGrants:       "Nessun consenso attivo.",
		oneSession:     "una sessione",
		grantedBy:      "da {by}, fino al {until}",
		andMore:        "… e ancora {n}",
		unavailable:    "Qui non è disponibile.",
		whichWorkspace: "Quale workspace? {workspaces}",
		paused:         "⏸ {workspace}: in pausa, non si esegue nulla fino a resume",
		alreadyPaused:  "⏸ {workspace}: era già in pausa",
		resumed:        "▶ {workspace}: pausa terminata, le richieste sospese vengono eseguite",
		notPaused:      "{workspace}, di per sé, non è in pausa",

		digestTitle: "📋 {n} richieste · {workspace} · tocca un pulsante per vedere la scheda",

		testCard:     "È solo una prova: nessuna richiesta è in attesa.",
		morningTitle: "🌅 {workspace}: nelle ore di silenzio {waiting} richieste sono rimaste in attesa e {expired} sono scadute",
		feedLine:     "Approvato automaticamente {id}: {rule}",
		feedTitle:    "🤖 {workspace} · consentito dalle regole",

		reminder:        "⏳ {id} è ancora in attesa, fino alle {time}",
		recall:          "⏳ {id} è ancora in attesa, fino alle {time}; permesso è stato riavviato",
		documentCaption: "{id}: testo completo",
	}
}
