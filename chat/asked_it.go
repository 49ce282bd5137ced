package chat

//nolint:misspell // Italian text
func italianVocabulary() vocabulary {
	return vocabulary{
		asks: setOf("che cosa quali quale quanto quanta quanti quante"), whom: setOf("chi dove"), why: setOf("perché perche"),
		openers: setOf("mi dimmi dica mostrami elenca elencami per puoi potresti vorrei a ad ai da dal in su con di"),
		fillers: setOf(`mi dimmi dica mostrami elenca elencami per favore puoi potresti dirmi sapere esattamente tutti tutte vorrei sarà saranno verrà verranno
			viene vengono vengo si sono è e ha di del dello della dei degli delle da dal in nel nella su sul a ad al allo alla ai agli alle con
			il lo la i gli le un una questo questa queste questi quello me tu ti io chiedi chiesto chiesta chiedono richiesta agente programma strumento l d nell dell all
			scritto scritta scritti scritte scrive scrivere scriverà letto letta letti lette legge leggere leggerà modificato modificati modificata modificate
			cambiato cambiati creato creati creata create cancellato cancellati cancellata cancellate toccato toccati aperto aperti usato usati usate
			inviato inviata inviati inviate invia invierà mandato mandata mandati mandate manda manderà contattato contattati contattata raggiunto raggiunti
			interrogato interrogate interrogata speso`),
		about: topics(map[topic]string{
			aboutMail:   "email mail posta",
			aboutPeople: "destinatario destinatari riceve ricevono riceverà riceveranno",
			aboutFiles:  "file files percorso percorsi cartella cartelle directory",
			aboutTables: "tabella tabelle database",
			aboutHosts:  "host server sito siti url",
			aboutMoney:  "denaro soldi costo costi costa costano costerà costeranno spende spenderà spesa paga pagare pagherà importo importi prezzo",
		}),
	}
}
