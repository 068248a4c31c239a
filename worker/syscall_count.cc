// Counting a thread's system calls: https://docs.kernel.org/admin-guide/syscall-user-dispatch.html

#include "worker/thread_costs.h"
#include "worker/thread_counters.h"

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>

namespace rigel {

namespace {

using detail::thread_counters;

// Of <linux/prctl.h>, since Linux 5.11.
constexpr int kSetSyscallUserDispatch = 59;
constexpr unsigned long kDispatchOff = 0;
constexpr unsigned long kDispatchOn = 1;

/// The kernel's form of struct sigaction.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

long system_call(const greg_t* registers) {
  long result = registers[REG_RAX];
  register long r10 asm("r10") = registers[REG_R10];
  register long r8 asm("r8") = registers[REG_R8];
  register long r9 asm("r9") = registers[REG_R9];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(registers[REG_RDI]), "S"(registers[REG_RSI]), "d"(registers[REG_RDX]),
                 "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

void count_and_call(int /*signal*/, siginfo_t* /*info*/, void* context) {
  thread_counters.dispatches = 0;
  auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  ThreadCosts& costs = thread_counters.costs;
  ++(thread_counters.num_apart > 0 ? costs.sleeps : costs.syscalls);
  registers[REG_RAX] = system_call(registers);
  thread_counters.dispatches = 1;
}

}  // namespace

SyscallCount::SyscallCount() {
  struct sigaction action = {};
  action.sa_sigaction = count_and_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  KernelAction kernel_action = {};
  if (sigaction(SIGSYS, &action, nullptr) != 0 ||
      syscall(SYS_rt_sigaction, SIGSYS, nullptr, &kernel_action, sizeof kernel_action.mask) != 0) {
    return;
  }
  // The handler returns by a system call of the C library's code at the restorer, which must not be dispatched again.
  constexpr unsigned long kRestorerBytes = 16;
  works_ = prctl(kSetSyscallUserDispatch, kDispatchOn,
                 reinterpret_cast<unsigned long>(kernel_action.restorer), kRestorerBytes,
                 &thread_counters.dispatches) == 0;
  thread_counters.dispatches = works_ ? 1 : 0;
}

SyscallCount::~SyscallCount() {
  thread_counters.dispatches = 0;
  if (works_) {
    prctl(kSetSyscallUserDispatch, kDispatchOff, 0, 0, 0);
  }
}

}  // namespace rigel

#else

namespace rigel {

SyscallCount::SyscallCount() = default;
SyscallCount::~SyscallCount() = default;

}  // namespace rigel

#endif
