"""What a run keeps besides numbers: images, tables, histograms, texts and sounds become files, and arrays again."""
