#pragma once

namespace rigel::server {

/// The program: reads the command line (and a --config file, and the environment), runs the command, returns the exit code:
/// 0 done, 1 failed, 2 wrong usage. Never throws.
int run_command_line(int argc, const char* const* argv);

}  // namespace rigel::server
