package failpoint_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/embedsidecar/embedsidecar/internal/base/failpoint"
)

// The test binary runs itself with this variable: it passes one failpoint five times and reports each.
const victimEnv = "FAILPOINT_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		for i := 1; i <= 5; i++ {
			fmt.Println("before", i)
			err := failpoint.Hit("test/place")
			fmt.Println("after", i, err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func victim(t *testing.T, spec string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"=1", failpoint.Env+"="+spec)
	return cmd
}

func TestKill_EndsTheProcessAtTheNthHit(t *testing.T) {
	out, err := victim(t, "test/place=kill@3").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("victim ended with %v, want SIGKILL", err)
	}
	want := "before 1\nafter 1 <nil>\nbefore 2\nafter 2 <nil>\nbefore 3\n"
	if string(out) != want {
		t.Errorf("victim said %q, want %q", out, want)
	}
}

func TestStop_StandsStillUntilContinued(t *testing.T) {
	cmd := victim(t, "test/place=stop@2")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("victim: status %v, %v; want it stopped", status, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scan := bufio.NewScanner(stdout); scan.Scan(); {
		lines = append(lines, scan.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := lines[len(lines)-1]; got != "after 5 <nil>" {
		t.Errorf("last line %q, want it to go on to the end", got)
	}
}

func TestMisspeltFailpoints_EndTheProcessAtStart(t *testing.T) {
	out, err := victim(t, "test/place=kil").CombinedOutput()
	if err == nil || !strings.Contains(string(out), `failpoint "test/place": action "kil": want kill, stop`) {
		t.Errorf("victim said %q (%v), want the mistake named", out, err)
	}
}

func TestHit_ActsOnlyWhenTold(t *testing.T) {
	for _, test := range []struct {
		action string
		want   string // one letter per hit: e error, . nothing
	}{
		{"error", "eeeee"},
		{"error@1", "e...."},
		{"error@3", "..e.."},
		{"error@3+", "..eee"},
		{"error@9", "....."},
	} {
		if err := failpoint.Enable(" ; test/hit = error;test/hit=" + test.action + ";"); err != nil {
			t.Fatal(err)
		}
		got := ""
		for range 5 {
			var failure *failpoint.Error
			switch err := failpoint.Hit("test/hit"); {
			case err == nil:
				got += "."
			case errors.As(err, &failure) && failure.Name == "test/hit":
				got += "e"
			default:
				t.Fatalf("%s: Hit returned %v", test.action, err)
			}
		}
		if got != test.want {
			t.Errorf("%s: hits did %s, want %s", test.action, got, test.want)
		}
		failpoint.Disable()
		if err := failpoint.Hit("test/hit"); err != nil {
			t.Errorf("%s: Hit after Disable returned %v", test.action, err)
		}
	}
}

func TestSleep_Waits(t *testing.T) {
	if err := failpoint.Enable("test/sleep=sleep(30ms)"); err != nil {
		t.Fatal(err)
	}
	defer failpoint.Disable("test/sleep")
	start := time.Now()
	if err := failpoint.Hit("test/sleep"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 30*time.Millisecond {
		t.Errorf("Hit took %s, want at least 30ms", took)
	}
}

func TestFunc_RunsAtThePlaceAndLeavesOthersAlone(t *testing.T) {
	if err := failpoint.Enable("test/other=error"); err != nil {
		t.Fatal(err)
	}
	defer failpoint.Disable("test/other")
	wrong := errors.New("wrong")
	remove := failpoint.Func("test/func", func() error { return wrong })
	if err := failpoint.Hit("test/func"); !errors.Is(err, wrong) {
		t.Errorf("Hit returned %v, want %v", err, wrong)
	}
	remove()
	if err := failpoint.Hit("test/func"); err != nil {
		t.Errorf("Hit after remove returned %v", err)
	}
	if err := failpoint.Hit("test/other"); err == nil {
		t.Error("the other failpoint is gone, too")
	}
}

func TestPanic_PanicsWithTheName(t *testing.T) {
	if err := failpoint.Enable("test/panic=panic"); err != nil {
		t.Fatal(err)
	}
	defer failpoint.Disable("test/panic")
	defer func() {
		if e, ok := recover().(*failpoint.Error); !ok || e.Name != "test/panic" {
			t.Errorf("recovered %v, want an *Error of test/panic", e)
		}
	}()
	_ = failpoint.Hit("test/panic")
}

func TestEnable_RefusesMistakesAndSetsNothing(t *testing.T) {
	for _, spec := range []string{
		"x", "=kill", "x=", "x=sleep", "x=sleep(3)", "x=sleep(3s", "x=kill@", "x=kill@0",
		"x=kill@-1+", "x=kill@+", "x=Kill",
	} {
		if err := failpoint.Enable("test/good=error;" + spec); err == nil {
			t.Errorf("Enable(%q) took it", spec)
		}
		if err := failpoint.Hit("test/good"); err != nil {
			t.Fatalf("Enable(%q) set the other one", spec)
		}
	}
}

func BenchmarkHit_Off(b *testing.B) {
	failpoint.Disable()
	for b.Loop() {
		_ = failpoint.Hit("test/off")
	}
}
