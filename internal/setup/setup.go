// Package setup makes what pipelines need and the database lacks. It looks at everything, plans, and only then does
// anything: it never changes a table of the user without saying so, and every change it makes has its undo in the
// report.
package setup
