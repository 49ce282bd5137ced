package email

//nolint:misspell // it is Italian, not English misspelt.
func italian() *catalog {
	return &catalog{ //nolint:gosec // it speaks of a code and holds none
		howTo: "Per decidere, rispondi a questa email. Inizia la risposta con un codice del menu: 1, 2, 3, 3 <motivo>, 4 <nota>, 5 <modifica>, 6, " +
			"? <domanda>, approve, deny oppure deny <motivo>. Conta solo il testo prima della prima riga vuota. Il testo citato non conta.",
		howToAnswer: "Per rispondere alla domanda, rispondi a questa email. Inizia la risposta con il numero di un'opzione, oppure con: answer <la tua risposta>. " +
			"Puoi anche rispondere deny. Conta solo il testo prima della prima riga vuota. Il testo citato non conta.",
		longCard:      "Questa email è lunga. Togli il testo citato dalla risposta: un'email di oltre 512 KiB non viene letta.",
		incomplete:    "✂ Non puoi approvare questa richiesta via email (codici 1, 2, 4 e 6), perché l'email non la mostra per intero. Per vederla tutta, esegui: permesso show {id}",
		ceiling:       "Non puoi approvare questa richiesta via email (codici 1, 2, 4 e 6): è {it}, e il limite per l'approvazione via email è {ceiling}. Negala qui, oppure decidi da un altro canale.",
		reversibility: map[string]string{"reversible": "reversibile", "partial": "parzialmente reversibile", "irreversible": "irreversibile"},
		agentWords:    "Con le parole dell'agente (non verificate):",
		unclear:       "Risposta non compresa, nulla è stato deciso.",
		doubt:         "Nulla è stato deciso, perché non è stato possibile leggere l'email in modo affidabile: {why}.",
		wrongToken:    "Nulla è stato deciso: questa email non contiene il codice di una scheda inviata a te. Rispondi direttamente alla scheda, dall'indirizzo che l'ha ricevuta.",
		otherRequest:  "Nulla è stato deciso: la richiesta è cambiata dopo l'invio della scheda.",
		late:          "Troppo tardi, nulla è cambiato. {outcome}",
		gone:          "Troppo tardi, nulla è cambiato: la richiesta è già conclusa.",
	}
}
