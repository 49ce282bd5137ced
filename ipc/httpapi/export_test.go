package httpapi

// Outcome is exported for the test of the document's table.
var Outcome = outcome

// About is the document's description.
const About = about
