package email

//nolint:misspell // it is Italian, not English misspelt.
func italian() *words {
	return &words{ //nolint:gosec // it speaks of a code and holds none
		howTo: "Per rispondere, rispondi a questa mail e comincia con un codice del menu. Valgono: 1, 2, 3, 3 <motivo>, 4 <nota>, 5 <modifica>, 6, " +
			"? <domanda>, approve, deny, deny <motivo>. Contano solo le prime righe della risposta, fino a una riga vuota; ciò che è citato non conta.",
		howToAnswer: "Per rispondere, rispondi a questa mail e comincia con il numero di un'opzione, oppure con: answer <le tue parole>. Vale anche deny. " +
			"Contano solo le prime righe della risposta, fino a una riga vuota; ciò che è citato non conta.",
		long:          "Questa mail è lunga: togli la citazione dalla risposta, perché una mail di più di 512 KiB non viene letta.",
		notWhole:      "✂ Per mail non si può approvare (codici 1, 2, 4 e 6), perché la mail non mostra tutto. Per vedere tutto: permesso show {id}",
		ceiling:       "Per mail non si può approvare (codici 1, 2, 4 e 6): è {it}, e qui per mail si approva solo ciò che è {ceiling}. Nega qui, oppure rispondi altrove.",
		reversibility: map[string]string{"reversible": "reversibile", "partial": "reversibile in parte", "irreversible": "irreversibile"},
		says:          "Nelle parole dell'agente, che nessuno ha verificato:",
		unclear:       "Non è chiaro, nulla è stato deciso.",
		doubt:         "Nulla è stato deciso, perché la mail non si legge con certezza: {why}.",
		wrongToken:    "Nulla è stato deciso: questa mail non porta il codice di una scheda mandata a te. Rispondi alla scheda stessa, dall'indirizzo che l'ha ricevuta.",
		otherRequest:  "Nulla è stato deciso: la richiesta non è più quella che la scheda mostra.",
		late:          "Troppo tardi, nulla è cambiato. {outcome}",
		gone:          "Troppo tardi, nulla è cambiato: la richiesta è chiusa.",
	}
}
