package rows

import (
	"errors"

	"github.com/embedsidecar/embedsidecar/internal/database"
)

// ErrOtherTable means that an embedding table's name means another table than the one that was looked at. What hangs
// on that one would run with the rights of our role, and the vectors in it may be of another model.
var ErrOtherTable = errors.New("another table stands where the embedding table was")

// ErrOtherColumn means the same of a column: another generation of the pipeline has the name by now.
var ErrOtherColumn = errors.New("another column has the name of the destination")

// ErrTrigger means that somebody hung a trigger on an embedding table, which would run with the rights of our role.
var ErrTrigger = errors.New("the embedding table has a trigger, which embedsidecar does not run: DROP TRIGGER removes it")

// ErrOtherTriggers means that the source table has other triggers than when it was looked at. They would run with the
// rights of a superuser.
var ErrOtherTriggers = errors.New("the triggers of the table changed since they were checked")

// ErrOtherOwner means that a table has another owner than when it was looked at, whose code our statements would run.
var ErrOtherOwner = errors.New("the owner of the table changed since it was checked")

// ErrMoved means that stored chunks are no longer what they were when they were read. It counts as a conflict: a new
// look helps.
var ErrMoved = errors.New("stored chunks changed meanwhile")

// RefusalError says what kept a vector out of its row. It holds nothing of the row.
type RefusalError string

func (e RefusalError) Error() string { return string(e) }

// What triggers of users' may do to a write-back to a column. Each counts as the row's fault, so that the row is found
// and named.
var (
	errSuppressed = RefusalError("a trigger or rule of the table suppressed the write of the vector")
	errReplaced   = RefusalError("a trigger of the table put something else in place of the vector that was written")
)

// Fault is database.Judge for what may also be an error of this package.
func Fault(err error) database.Fault {
	if _, refused := errors.AsType[RefusalError](err); refused || errors.Is(err, ErrSplit) {
		return database.Data
	}
	if errors.Is(err, ErrMoved) {
		return database.Conflict
	}
	return database.Judge(err)
}
