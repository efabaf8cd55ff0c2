"""Super Mario Bros on an emulated console."""
