#pragma once

// The kernel dialect: the only header that kernel text includes. The same names on both machines; kernel text holds no #if.
//
// Rules (4-one-source): one collective a line; 16-byte access by ld16/st16 and what is built on them; half types are loaded,
// computed with as float and stored; no locals with destructors; no __activemask, no warp-synchronous code, no spinning on
// memory, no device globals; the block size is a template parameter.

#include "simt/types.h"

#if defined(__CUDACC__)
#include "simt/device.h"
#else
#include "simt/host.h"
#endif

#include "simt/block_reduce.h"
#include "simt/vec.h"
