package main

import "fmt"

// A script is what pgbench does to the table docs.
type script struct{ name, sql string }

const docsRows = 10_000

var (
	updateSource = script{"update of the source column", sourceOf(docsRows)}
	updateOther  = script{"update of another column", otherOf(docsRows)}
	insertRow    = script{"insert", "\\set n random(1, 1000000000)\nINSERT INTO public.docs (id, body) " +
		"VALUES (nextval('public.docs_ids'), 'a text that is new, number ' || :n);\n"}
)

// sourceOf changes the source column of one of so many rows, and otherOf another one.
func sourceOf(rows int) string {
	return fmt.Sprintf("\\set id random(1, %d)\n\\set n random(1, 1000000000)\n"+
		"UPDATE public.docs SET body = 'a text that was changed once more, number ' || :n WHERE id = :id;\n", rows)
}

func otherOf(rows int) string {
	return fmt.Sprintf("\\set id random(1, %d)\nUPDATE public.docs SET views = views + 1 WHERE id = :id;\n", rows)
}
