// Carries precompiled headers for the targets that share them: CMake compiles such headers for a target with a source.
