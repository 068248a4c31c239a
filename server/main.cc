#include "server/command_line.h"

int main(int argc, char** argv) {
  return rigel::server::run_command_line(argc, argv);
}
