package rows

import (
	"errors"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// ErrOtherTable means that the name of the embedding table now belongs to another table. Its code would run with our
// role's rights, and its vectors may be of another model.
var ErrOtherTable = errors.New("another table now has the name of the embedding table")

// ErrOtherColumn means that the column name now belongs to another column, of another generation.
var ErrOtherColumn = errors.New("another column now has the name of the destination")

// ErrTrigger means that an embedding table has a trigger, which would run with our role's rights.
var ErrTrigger = errors.New("the embedding table has a trigger, which embedsidecar does not run: DROP TRIGGER removes it")

// ErrOtherTriggers means that the triggers of the source table changed since they were checked. They would run with a
// superuser's rights.
var ErrOtherTriggers = errors.New("the triggers of the table changed since they were checked")

// ErrOtherOwner means that the owner of a table, whose code we would run, changed since the check.
var ErrOtherOwner = errors.New("the owner of the table changed since it was checked")

// ErrMoved means that stored chunks changed since they were read. It counts as a conflict: reading again helps.
var ErrMoved = errors.New("stored chunks changed meanwhile")

// RefusalError is why a vector was not written into its row. It contains no row data.
type RefusalError string

func (e RefusalError) Error() string { return string(e) }

// Effects of users' triggers on a write-back to a column. They count as the row's fault, so that the row is reported.
var (
	errSuppressed = RefusalError("a trigger or rule of the table suppressed the write of the vector")
	errReplaced   = RefusalError("a trigger of the table put something else in place of the vector that was written")
)

// Fault is database.Judge, extended by the errors of this package.
func Fault(err error) database.Fault {
	if _, refused := errors.AsType[RefusalError](err); refused || errors.Is(err, ErrSplit) {
		return database.Data
	}
	if errors.Is(err, ErrMoved) {
		return database.Conflict
	}
	return database.Judge(err)
}
