"""The load's two kernels, in the oldest PTX that has sm_70; a driver compiles them for its own GPU.

PTX ISA 6.0 is the first with sm_70 (NVIDIA, PTX ISA, release notes); the driver of an older GPU refuses it.
"""

COMPUTE, MEMORY = "compute", "memory"
PTX = """.version 6.0
.target sm_70
.address_size 64
.visible .entry compute(.param .u64 buffer, .param .u32 rounds)
{
  .reg .pred %more; .reg .f32 %a, %b, %c, %d; .reg .b32 %left, %thread, %block, %size; .reg .b64 %at, %to;
  ld.param.u64 %to, [buffer];
  ld.param.u32 %left, [rounds];
  mov.u32 %thread, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %size, %ntid.x;
  mad.lo.u32 %thread, %block, %size, %thread;
  cvt.rn.f32.u32 %a, %thread;
  mov.f32 %b, 0f3F7FFFFF; mov.f32 %c, 0f3A83126F; mov.f32 %d, %a;
AGAIN:
  fma.rn.f32 %a, %a, %b, %c; fma.rn.f32 %d, %d, %b, %c;
  fma.rn.f32 %a, %a, %b, %c; fma.rn.f32 %d, %d, %b, %c;
  fma.rn.f32 %a, %a, %b, %c; fma.rn.f32 %d, %d, %b, %c;
  fma.rn.f32 %a, %a, %b, %c; fma.rn.f32 %d, %d, %b, %c;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %more, %left, 0;
  @%more bra AGAIN;
  add.f32 %a, %a, %d;
  mul.wide.u32 %at, %thread, 4;
  add.u64 %to, %to, %at;
  st.global.f32 [%to], %a;
  ret;
}
.visible .entry memory(.param .u64 buffer, .param .u32 words)
{
  .reg .pred %more; .reg .b32 %at, %block, %size, %blocks, %step, %words, %v; .reg .b64 %from, %to, %far;
  ld.param.u64 %from, [buffer];
  ld.param.u32 %words, [words];
  mov.u32 %at, %tid.x; mov.u32 %block, %ctaid.x; mov.u32 %size, %ntid.x; mov.u32 %blocks, %nctaid.x;
  mad.lo.u32 %at, %block, %size, %at;
  mul.lo.u32 %step, %size, %blocks;
  mul.wide.u32 %far, %words, 4;
NEXT:
  setp.ge.u32 %more, %at, %words;
  @%more bra DONE;
  mul.wide.u32 %to, %at, 4;
  add.u64 %to, %from, %to;
  ld.global.u32 %v, [%to];
  add.u64 %to, %to, %far;
  st.global.u32 [%to], %v;
  add.u32 %at, %at, %step;
  bra NEXT;
DONE:
  ret;
}
"""
