# SPDX-License-Identifier: MIT
# What consumers of Kformer::parallel need: its headers include mpi.h.
enable_language(C) # FindMPI asks the C compiler for the C library
find_dependency(MPI COMPONENTS C)
