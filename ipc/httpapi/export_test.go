package httpapi

// Outcome lets the table in the document be held against what is done.
var Outcome = outcome

// About is the document's text.
const About = about
