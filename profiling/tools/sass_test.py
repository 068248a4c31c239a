#!/usr/bin/env python3
"""Tests of the SASS report. usage: sass_test.py"""
import unittest

import sass
import sass_report

# One loop that loads 16 and stores 2 bytes a pass, a slow path that lies behind the kernel's end and jumps back into its
# middle, and the trap that jumps to itself. The second line of an instruction is its encoding.
LISTING = """
		Function : _Z4copyv
	.headerflags	@"EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   S2R R2, SR_TID.X ;                        /* 0x0000000000027919 */
                                                                             /* 0x000e220000002100 */
        /*0010*/              @!P1 BRA 0x90 ;                                /* 0x0000000400bc9947 */
        /*0020*/                   LDG.E.128.CONSTANT R4, desc[UR8][R6.64] ; /* 0x0000000806077981 */
        /*0030*/                   STS.64 [R3], R4 ;                         /* 0x0000000806077981 */
        /*0040*/                   STG.E.U16 desc[UR8][R8.64+0x10], R4 ;     /* 0x0000000806077981 */
        /*0050*/               @P0 BRA 0x20 ;                                /* 0x0000000400a03947 */
        /*0060*/              @!P2 LDG.E R7, desc[UR8][R6.64] ;              /* 0x0000000806077981 */
        /*0070*/                   EXIT ;                                    /* 0x000000000000794d */
        /*0080*/                   BRA 0x80;                                 /* 0xfffffffc00fc7947 */
        /*0090*/                   LDL.64 R4, [R1] ;                         /* 0x0000000806077981 */
        /*00a0*/                   BRA 0x60 ;                                /* 0xfffffffc00fc7947 */
"""
RESOURCES = """
Resource usage:
 Common:
  GLOBAL:0
 Function _Z4copyv:
  REG:34 STACK:0 SHARED:1056 LOCAL:8 CONSTANT[0]:584 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
INFORMATION = """
.nv.info._Z4copyv
	<0x1>
	Attribute:	EIATTR_MAXREG_COUNT
	Format:	EIFMT_HVAL
	Value:	0xff
	<0x2>
	Attribute:	EIATTR_MAX_THREADS
	Format:	EIFMT_SVAL
	Value:	0x80 0x2 0x1 
"""


def read_listing():
    kernels = {}
    sass.parse_sass(LISTING, kernels)
    sass.parse_resources(RESOURCES, kernels)
    sass.parse_launch_bounds(INFORMATION, kernels)
    return kernels["_Z4copyv"]


class SassTest(unittest.TestCase):
    def test_reads_instructions_and_skips_encodings(self):
        kernel = read_listing()
        self.assertEqual(len(kernel.instructions), 11)
        self.assertEqual(kernel.instructions[1].predicate, "!P1")
        self.assertEqual(kernel.instructions[1].target, 0x90)
        self.assertEqual([i.width for i in kernel.instructions[2:5]], [16, 8, 2])

    def test_reads_resources_without_the_systems_shared_memory(self):
        kernel = read_listing()
        self.assertEqual((kernel.registers, kernel.shared_bytes, kernel.local_bytes, kernel.max_threads), (34, 32, 8, 256))

    def test_only_a_jump_to_a_dominator_makes_a_loop(self):
        self.assertEqual(sass.loops(read_listing().instructions), [[2, 3, 4, 5]])

    def test_of_nested_loops_the_inner_one_counts(self):
        kernels = {}
        sass.parse_sass("""
		Function : nested
        /*0000*/                   MOV R1, R2 ;
        /*0010*/                   MOV R3, R2 ;
        /*0020*/               @P0 BRA 0x10 ;
        /*0030*/               @P1 BRA 0x0000 ;
        /*0040*/                   EXIT ;
""", kernels)
        self.assertEqual(sass.loops(kernels["nested"].instructions), [[1, 2]])

    def test_a_block_that_waits_goes_on_where_the_others_do(self):
        kernels = {}
        sass.parse_sass("""
		Function : meeting
        /*0000*/                   BSSY B0, 0x0030 ;
        /*0010*/               @P0 BRA 0x40 ;
        /*0020*/                   BSYNC B0 ;
        /*0030*/                   EXIT ;
        /*0040*/                   BSYNC B0 ;
        /*0050*/                   BRA 0x50 ;
""", kernels)
        edges = sass.successors(kernels["meeting"].instructions)
        self.assertEqual((edges[2], edges[4]), ({3}, {3}))


class ReportTest(unittest.TestCase):
    def test_the_hot_loop_is_measured(self):
        loop = sass_report.hot_loop(read_listing())
        self.assertEqual(len(loop), 4)
        self.assertEqual(sass_report.moved_bytes(loop, sass.GLOBAL_LOADS + sass.GLOBAL_STORES), 18)
        self.assertEqual(sass_report.moved_bytes(loop, sass.SHARED), 8)

    def test_occupancy_follows_the_scarcest_resource(self):
        def share(registers, shared_bytes, threads):
            return sass_report.occupancy(sass.Kernel("k", [], registers, shared_bytes, 0, threads))
        self.assertEqual(share(32, 0, 256), 1.0)
        self.assertEqual(share(34, 32, 256), 0.75)         # registers: 1,280 a warp
        self.assertEqual(share(32, 0, 32), 0.5)            # 32 blocks
        self.assertEqual(share(32, 48 * 1024, 128), 0.25)  # four blocks of 49 KiB
        self.assertIsNone(share(32, 0, 0))

    def test_names_lose_namespaces_and_parameters(self):
        self.assertEqual(sass_report.short_name(
            "void rigel::kernels::rms_norm_kernel<__nv_bfloat16, 64, true, false>(rigel::kernels::RmsNormParams)"),
            "rms_norm_kernel<bf16, 64, true, false>")
        self.assertEqual(sass_report.short_name(
            "void rigel::kernels::gate_kernel<float, 256, true, (rigel::kernels::Activation)1>(rigel::kernels::GateParams)"),
            "gate_kernel<float, 256, true, Activation 1>")

    def test_narrow_accesses_and_local_memory_are_complaints(self):
        kernel = read_listing()
        found = sass_report.complaints([("embed_kernel<bf16, 256, true>", kernel)])
        self.assertTrue(any("no 16-byte store" in text for text in found))
        self.assertFalse(any("no 16-byte load" in text for text in found))
        self.assertTrue(any("local memory" in text for text in found))
        self.assertTrue(any("gate_kernel" in text for text in found), "a rule for a kernel that is gone")

    def test_ragged_instantiations_are_exempt(self):
        self.assertIsNone(sass_report.rule_of("embed_kernel<bf16, 256, false>"))
        self.assertIsNotNone(sass_report.rule_of("embed_kernel<bf16, 256, true>"))


if __name__ == "__main__":
    unittest.main()
