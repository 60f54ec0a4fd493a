package testenv

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel stop a server at once when this process ends, even by SIGKILL.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT }
